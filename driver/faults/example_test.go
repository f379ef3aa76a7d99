package faults_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

// A session ends while the program holds a lock. The work stops because it uses
// the lock's context.
func ExampleConnector_EndSessions() {
	store := faults.New(memdriver.New(), nil)
	client := dlock.NewClient(store)
	defer client.Close()

	err := client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context, _ *dlock.Lock) error {
		store.EndSessions()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println(errors.Is(err, dlock.ErrLost))
	// Output: true
}

// The network loses 5% of all requests and 5% of all replies. A second run with
// the same seed loses the same requests and replies.
func ExampleRates() {
	store := faults.New(memdriver.New(), faults.Rates{
		Seed:         4,
		LoseRequests: 0.05,
		LoseReplies:  0.05,
	}.Plan)
	client := dlock.NewClient(store)
	defer client.Close()

	for range 20 {
		err := client.RWMutex("stock/42").WithLock(context.Background(), func(context.Context, *dlock.Lock) error { return nil })
		if err != nil {
			fmt.Println(err)
		}
	}
	stats := store.Stats()
	fmt.Println(stats.RequestsLost > 0, stats.RepliesLost > 0)
	// Output: true true
}

// The reply to the first Create is lost after the store has made the node. The
// connector removes that node, because the caller does not know it.
func ExampleNew() {
	memory := memdriver.New()
	store := faults.New(memory, func(_ context.Context, r faults.Request) faults.Fault {
		if r.Op == faults.OpCreate && r.Nth == 1 && r.Stage == faults.StageReply {
			fmt.Println("lost on its way:", r)
			return faults.Fault{Lose: true}
		}
		return faults.Fault{}
	})
	client := dlock.NewClient(store, dlock.WithHostname("web1"))
	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("won:", lock.Node())
	fmt.Println("errors:", lock.Unlock(), client.Close())
	fmt.Println("nodes left in the store:", memory.Stats().Nodes)
	// Output:
	// lost on its way: create "stock/42" "web1-W-0000000000", reply
	// won: web1-W-0000000001
	// errors: <nil> <nil>
	// nodes left in the store: 0
}
