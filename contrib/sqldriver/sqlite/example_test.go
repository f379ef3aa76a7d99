package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
)

// Two clients, which may be in different processes, share a file.
func Example() {
	dir, err := os.MkdirTemp("", "dlock-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	dsn := filepath.Join(dir, "locks.db") + "?session_timeout=5s"
	for _, name := range []string{"first", "second"} {
		client, err := dlock.Open("sqlite", dsn)
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		lock, err := client.RWMutex("stock/42").Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, "client, token", lock.Token())
		if err := lock.Unlock(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// first client, token 1
	// second client, token 2
}

// The locks are kept in the application's database, next to its tables.
func ExampleNewConnector() {
	dir, err := os.MkdirTemp("", "dlock-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	connector, err := sqlite.NewConnector(db, 0)
	if err != nil {
		log.Fatal(err)
	}
	client := dlock.NewClient(connector)
	defer client.Close()
	err = client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context, _ *dlock.Lock) error {
		_, err := db.ExecContext(ctx, "CREATE TABLE item (name TEXT)")
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}
