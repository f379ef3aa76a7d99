module github.com/dlock-go/dlock

go 1.25.0

require (
	github.com/cenkalti/backoff/v4 v4.3.0
	github.com/go-zookeeper/zk v1.0.4
	github.com/hashicorp/go-multierror v1.1.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.22.0
)

require (
	github.com/hashicorp/errwrap v1.1.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
