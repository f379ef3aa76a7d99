package etcddriver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/etcddriver"
)

// This example takes a lock in an etcd cluster of three servers. It is not run,
// because tests have no such cluster.
func Example() {
	client, err := dlock.Open("etcd", "etcd://etcd1,etcd2,etcd3/locks?session_timeout=10s")
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

// This example takes a lock in the cluster that the program's own etcd client
// uses.
func ExampleNewConnector() {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"etcd1:2379", "etcd2:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	connector, err := etcddriver.NewConnector(etcd, etcddriver.Options{Prefix: "locks"})
	if err != nil {
		log.Fatal(err)
	}
	client := dlock.NewClient(connector)
	defer client.Close()

	err = client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context, _ *dlock.Lock) error {
		_, err := etcd.Put(ctx, "stock", "41")
		return err
	})
	fmt.Println(err)
}

// Open checks the data source name without connecting to etcd. Errors do not
// reveal passwords.
func Example_dataSourceName() {
	_, err := dlock.Open("etcd", "etcd://shop:secret@etcd1/locks?tls_ca=ca.pem")
	fmt.Println(err)
	client, err := dlock.Open("etcd", "etcd://shop:secret@etcd1/locks?session_timeout=2s&tls=true")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Close())
	// Output:
	// dlock: open "etcd": etcddriver: dsn: a tls_ parameter without tls=true
	// <nil>
}
