package natsdriver_test

import (
	"context"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/natsdriver"
)

func Example() {
	client, err := dlock.Open("nats", "nats://nats1,nats2,nats3/locks?replicas=3")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock()
}

// This example uses the servers and login of the program's own connection.
func ExampleNewConnector() {
	nc, err := nats.Connect("nats://nats1,nats2,nats3", nats.UserCredentials("/etc/app/nats.creds"))
	if err != nil {
		log.Fatal(err)
	}
	connector, err := natsdriver.NewConnector(nc, "locks", "replicas=3")
	if err != nil {
		log.Fatal(err)
	}
	client := dlock.NewClient(connector)
	defer client.Close()
}
