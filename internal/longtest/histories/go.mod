module github.com/dlock-go/dlock/internal/longtest/histories

go 1.25.0

replace github.com/dlock-go/dlock => ../../..

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/dlock-go/dlock v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.21.0 // indirect
)
