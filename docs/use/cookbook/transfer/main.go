// The program transfer moves money between accounts that many processes change.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver" // for real accounts: contrib/sqldriver/postgres
)

func main() {
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for both locks together
	defer cancel()
	accounts := &bank{balances: map[string]int{"alice": 100, "bob": 100}, tokens: make(map[string]int64)}
	if err := transfer(ctx, client, accounts, "bob", "alice", 30); err != nil {
		log.Fatal(err)
	}
	fmt.Println(accounts.balances)
}

// transfer moves amount from one account to another. Nobody who takes the locks
// of these accounts sees the money twice or not at all.
func transfer(ctx context.Context, client *dlock.Client, accounts *bank, from, to string, amount int) (err error) {
	// LockAll takes locks in the order of their names, so that two transfers in
	// opposite directions cannot wait for each other for ever.
	locks, err := dlock.LockAll(ctx, client.RWMutex("account/"+from), client.RWMutex("account/"+to))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Unlock()) }()
	ctx = locks.Context(ctx) // ends as soon as one of the locks is lost
	all := locks.All()       // in the order of the arguments
	return accounts.move(ctx, amount, stamp{from, all[0].Token()}, stamp{to, all[1].Token()})
}

var errStale = errors.New("a later holder of the lock has written")

type stamp struct {
	account string
	token   int64
}

// bank keeps the greatest token of each account beside its balance.
type bank struct {
	mu       sync.Mutex
	balances map[string]int
	tokens   map[string]int64
}

// move changes both accounts or, if one token is stale, none. In a database, this
// is one transaction.
func (b *bank) move(ctx context.Context, amount int, from, to stamp) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, s := range []stamp{from, to} {
		if s.token < b.tokens[s.account] {
			return fmt.Errorf("account %s: %w", s.account, errStale)
		}
	}
	b.tokens[from.account], b.tokens[to.account] = from.token, to.token
	b.balances[from.account] -= amount
	b.balances[to.account] += amount
	return nil
}
