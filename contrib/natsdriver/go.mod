module github.com/dlock-go/dlock/contrib/natsdriver

go 1.25.0

replace github.com/dlock-go/dlock => ../..

require (
	github.com/dlock-go/dlock v0.1.0
	github.com/nats-io/nats.go v1.53.1
	github.com/nats-io/nkeys v0.4.15
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/klauspost/compress v1.18.5 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.49.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.42.0 // indirect
)
