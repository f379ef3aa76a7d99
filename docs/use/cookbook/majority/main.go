// The program majority changes a value under a lock in three independent stores.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/majority"
	_ "github.com/dlock-go/dlock/memdriver"
)

// open opens and pings a client of each store. It only logs a failed ping,
// because a minority may be down.
func open(ctx context.Context, driver string, dsns ...string) (clients []*dlock.Client, err error) {
	for _, dsn := range dsns {
		client, err := dlock.Open(driver, dsn)
		if err != nil {
			return clients, err
		}
		if err := client.Ping(ctx); err != nil {
			log.Printf("%s is away: %v", dsn, err)
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// account is what the lock protects.
type account struct {
	marks   fence.Marks
	balance int
}

// add refuses a caller whose list of tokens is stale.
func (a *account) add(tokens []int64, amount int) error {
	return a.marks.DoAll("account/7", tokens, func() error {
		a.balance += amount
		return nil
	})
}

// deposit adds to the account under the lock.
func deposit(ctx context.Context, m *majority.Mutex, a *account, amount int) (err error) {
	locks, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Unlock()) }()
	ctx = locks.Context(ctx) // ends if too few stores hold the lock
	if err := checkLimits(ctx, amount); err != nil {
		return err
	}
	return a.add(locks.Tokens(), amount)
}

// checkLimits stands for work under the lock.
func checkLimits(ctx context.Context, _ int) error { return ctx.Err() }

func main() {
	ctx := context.Background()
	clients, err := open(ctx, "mem", "one", "two", "three")
	if err != nil {
		log.Fatal(err)
	}
	var a account
	if err := deposit(ctx, &majority.Mutex{Name: "account/7", Clients: clients}, &a, 50); err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance", a.balance)
	for _, client := range clients {
		client.Close()
	}
}
