package zkdriver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/zkdriver"
)

// This program uses an ensemble of three servers.
func Example() {
	client, err := dlock.Open("zk", "zk://zk1:2181,zk2:2181,zk3:2181/locks?session_timeout=10s")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock, err := client.RWMutex("stock/42").Lock(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	defer lock.Unlock()
	fmt.Println(lock.Mode(), lock.Token())
}
