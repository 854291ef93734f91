module gapura.dev/hack/kube-crds

go 1.25.0
