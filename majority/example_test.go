package majority_test

import (
	"context"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/majority"
	_ "github.com/dlock-go/dlock/memdriver"
)

func Example() {
	ctx := context.Background()
	var clients []*dlock.Client
	for _, dsn := range []string{"one", "two", "three"} {
		client, err := dlock.Open("mem", dsn)
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		if err := client.Ping(ctx); err != nil {
			log.Print(err) // a minority of the stores may be unreachable
		}
		clients = append(clients, client)
	}
	lock, err := (&majority.Mutex{Name: "account/7", Clients: clients}).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Tokens()) // the resource checks them: see fence.Marks.DoAll
	fmt.Println(lock.Unlock())
	// Output:
	// [1 1 1]
	// <nil>
}
