// Command dlock shows what distributed read-write locks do, with every driver
// of this repository. Run it without arguments to list its commands:
//
//	go run ./contrib/cmd/dlock demo -driver redis -dsn redis://localhost:6379
//	go install github.com/dlock-go/dlock/contrib/cmd/dlock@latest
package main

import (
	"github.com/dlock-go/dlock/internal/command"

	_ "github.com/dlock-go/dlock/contrib/etcddriver"
	_ "github.com/dlock-go/dlock/contrib/natsdriver"
	_ "github.com/dlock-go/dlock/contrib/redisdriver"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/mysql"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
	_ "github.com/dlock-go/dlock/memdriver"
	_ "github.com/dlock-go/dlock/zkdriver"
)

func main() { command.Main() }
