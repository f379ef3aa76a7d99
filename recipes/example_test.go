package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// A program that does not use package dlock creates a client from a driver's
// connector.
func Example() {
	client := recipes.NewClient(memdriver.New(), recipes.WithHostname("web1"))
	defer client.Close()

	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Mode(), lock.Node(), lock.Token())
	fmt.Println(lock.Unlock())
	// Output:
	// exclusive web1-W-0000000000 1
	// <nil>
}

// Readers share a lock, so a writer cannot get it without waiting.
func ExampleRWMutex_TryLock() {
	ctx := context.Background()
	store := memdriver.New()
	readers, writers := recipes.NewClient(store), recipes.NewClient(store)
	defer readers.Close()
	defer writers.Close()

	stock := readers.RWMutex("stock/42")
	first, err := stock.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer first.Unlock()
	second, err := stock.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Unlock()

	_, err = writers.RWMutex("stock/42").TryLock(ctx)
	fmt.Println(errors.Is(err, recipes.ErrLocked))
	// Output: true
}
