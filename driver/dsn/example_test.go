package dsn_test

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver/dsn"
)

func Example() {
	u, err := dsn.Split("shop:secret@db1,db2:7000/locks?session_timeout=4s", "6000")
	if err != nil {
		panic(err)
	}
	user, _, err := dsn.Login(u.Login)
	if err != nil {
		panic(err)
	}
	var timeout time.Duration
	parameters := dsn.Parameters{"session_timeout": dsn.Duration(&timeout, time.Second, time.Hour)}
	if err := parameters.Parse(u.Query); err != nil {
		panic(err)
	}
	fmt.Println(user, u.Hosts, u.Path, timeout)
	fmt.Println(parameters.Parse("session_timeout=soon"))
	// Output:
	// shop [db1:6000 db2:7000] /locks 4s
	// parameter session_timeout: not a duration from 1s to 1h0m0s, such as 10s
}
