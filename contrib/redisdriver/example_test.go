package redisdriver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/redisdriver"
)

// This example takes a lock in Redis. It is not run, because it needs a server.
func Example() {
	client, err := dlock.Open("redis", "redis://localhost:6379?session_timeout=10s")
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

// This example takes a lock on the servers that the program's own go-redis
// client uses.
func ExampleNewConnector() {
	cache := redis.NewClient(&redis.Options{Addr: "localhost:6379", Password: "secret"})
	defer cache.Close()
	connector, err := redisdriver.NewConnector(cache, redisdriver.Options{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	client := dlock.NewClient(connector)
	defer client.Close()

	err = client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context, _ *dlock.Lock) error {
		return cache.Incr(ctx, "stock").Err()
	})
	fmt.Println(err)
}

// Errors do not reveal passwords.
func Example_dataSourceName() {
	_, err := dlock.Open("redis", "redis://:secret@localhost:6379?tls_ca=ca.pem")
	fmt.Println(err)
	client, err := dlock.Open("redis", "rediss://app:secret@redis.example:6380/2?namespace=shop&session_timeout=10s")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Close())
	// Output:
	// dlock: open "redis": redisdriver: dsn: a tls_ parameter without the scheme rediss://
	// <nil>
}
