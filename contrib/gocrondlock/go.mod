module github.com/dlock-go/dlock/contrib/gocrondlock

go 1.25.0

replace github.com/dlock-go/dlock => ../..

require (
	github.com/dlock-go/dlock v0.1.0
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
)
