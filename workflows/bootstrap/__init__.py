"""What is put on hosts and clusters: files, kubeadm configurations, Kubespray inventories, components."""
