// Command kubeadm is upstream's, compiled from its module.
package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() { errors.HandleError(app.Run()) }
