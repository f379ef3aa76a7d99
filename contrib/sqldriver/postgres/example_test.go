package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/postgres"
)

// A program opens a client with the URL of its database. The output is not
// checked, because the example needs that database.
func Example() {
	client, err := dlock.Open("postgres", "postgres://shop:secret@db:5432/shop?sslmode=verify-full")
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

// Open does no I/O, and rejects an invalid data source name. The error never
// repeats a password.
func Example_dataSourceName() {
	_, err := dlock.Open("postgres", "postgres://shop:secret@db/shop?sesion_timeout=2s")
	fmt.Println(err)
	client, err := dlock.Open("postgres", "postgres://shop:secret@db/shop?session_timeout=2s&schema=locks")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Close())
	// Output:
	// dlock: open "postgres": postgres: dsn: unknown parameter "sesion_timeout"
	// <nil>
}

// A program that already has a connection pool can use it for locks, too.
func ExampleNewConnector() {
	db, err := sql.Open("pgx", "postgres://shop:secret@db:5432/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	connector, err := postgres.NewConnector(db, postgres.Options{SessionTimeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	client := dlock.NewClient(connector)
	fmt.Println(client.Close())
	// Output: <nil>
}
