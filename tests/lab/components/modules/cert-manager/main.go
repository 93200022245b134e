// Command cert-manager is the controllers, the webhook, the injector of authorities and the check of cert-manager, by
// the name under which it is called. Upstream's own programs are modules that no proxy serves; their parts are in the
// module that it does serve. Issuers that sign by themselves or with an authority of the cluster are in it; those that
// ask somebody outside (ACME, Vault, Venafi) are left out.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/webhook"
	certscheme "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/metrics"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	"github.com/cert-manager/cert-manager/pkg/healthz"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
	"github.com/cert-manager/cert-manager/pkg/util/cmapichecker"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

const workers = 5

func main() {
	logs.InitLogs()
	ctrl.SetLogger(logs.Log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	called := filepath.Base(os.Args[0])
	parts := map[string]func(context.Context, []string) error{
		"controller":      controllers,
		"webhook":         serveWebhook,
		"cainjector":      inject,
		"startupapicheck": check,
	}
	part, known := parts[called]
	if !known {
		fmt.Fprintf(os.Stderr, "called %q, which is no part of cert-manager\n", called)
		os.Exit(2)
	}
	if err := part(logs.NewContext(ctx, logs.Log, called), os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", called, err)
		os.Exit(1)
	}
}

// flags takes those that a part knows; what else its chart says is passed over.
func flags(name string) *pflag.FlagSet {
	made := pflag.NewFlagSet(name, pflag.ContinueOnError)
	made.ParseErrorsAllowlist.UnknownFlags = true
	return made
}

func controllers(ctx context.Context, words []string) error {
	set := flags("controller")
	elects := set.String("leader-election-namespace", "kube-system", "where the leader is elected")
	keeps := set.String("cluster-resource-namespace", "kube-system", "where Secrets of cluster issuers are")
	if err := set.Parse(words); err != nil {
		return err
	}
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: *keeps},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	made, err := factory.Build()
	if err != nil {
		return err
	}
	health := healthz.NewServer(20 * time.Second)
	for address, serve := range map[string]func(net.Listener) error{
		":9403": func(where net.Listener) error { return health.Start(ctx, where) },
		":9402": func(where net.Listener) error { return made.Metrics.NewServer(where).Serve(where) },
	} {
		where, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() { _ = serve(where) }()
	}
	return lead(ctx, made, *elects, health, func(ctx context.Context) error { return run(ctx, factory, made) })
}

// lead does it for as long as this is the one that leads, and ends with it.
func lead(ctx context.Context, made *controller.Context, namespace string, health *healthz.Server, do func(context.Context) error) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	identity := resourcelock.ResourceLockConfig{Identity: name + "-cert-manager-controller"}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, "cert-manager-controller",
		made.Client.CoreV1(), made.Client.CoordinationV1(), identity)
	if err != nil {
		return err
	}
	ended := fmt.Errorf("it leads no longer")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   60 * time.Second,
		RenewDeadline:   40 * time.Second,
		RetryPeriod:     15 * time.Second,
		ReleaseOnCancel: true,
		WatchDog:        health.LeaderHealthzAdaptor,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { ended = do(ctx); stop() },
			OnStoppedLeading: func() {},
		},
	})
	return ended
}

// run starts every controller that is compiled in, and ends with the first that does.
func run(ctx context.Context, factory *controller.ContextFactory, made *controller.Context) error {
	ends := make(chan error, len(controller.Known()))
	var all sync.WaitGroup
	for name, build := range controller.Known() {
		one, err := build(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all.Go(func() {
			if err := one.Run(workers, ctx); err != nil {
				ends <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	made.SharedInformerFactory.Start(ctx.Done())
	made.KubeSharedInformerFactory.Start(ctx.Done())
	made.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	go func() { all.Wait(); ends <- nil }()
	return <-ends
}

func serveWebhook(ctx context.Context, words []string) error {
	settings, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	set := flags("webhook")
	options.AddConfigFlags(set, settings)
	if err := set.Parse(words); err != nil {
		return err
	}
	server, err := webhook.NewCertManagerWebhookServer(logs.Log, *settings)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

func inject(ctx context.Context, words []string) error {
	set := flags("cainjector")
	elects := set.String("leader-election-namespace", "kube-system", "where the leader is elected")
	if err := set.Parse(words); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubescheme.AddToScheme, certscheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	// The name by which it writes is made of what it says of itself.
	config := util.RestConfigWithUserAgent(ctrl.GetConfigOrDie(), "cainjector")
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		LeaderElection:                true,
		LeaderElectionNamespace:       *elects,
		LeaderElectionID:              "cert-manager-cainjector-leader-election",
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: ":9402"},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName:                     true,
			cainjector.CustomResourceDefinitionName:       true,
		},
	})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

// check asks the API for certificates as their users do, until it answers as it should; `check api` stands before flags.
func check(ctx context.Context, words []string) error {
	set := flags("startupapicheck")
	wait := set.Duration("wait", time.Minute, "so long it may take")
	if err := set.Parse(words); err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if _, err := kubernetes.NewForConfig(config); err != nil {
		return err
	}
	asks, err := cmapichecker.New(config, os.Getenv("POD_NAMESPACE"))
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, *wait)
	defer stop()
	for {
		err := asks.Check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(2 * time.Second):
		}
	}
}
