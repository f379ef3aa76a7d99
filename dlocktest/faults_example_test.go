package dlocktest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/memdriver"
)

// What does a program do when its session ends while it holds a lock? Here work runs under the
// lock's context and stops.
func ExampleFaults_EndSessions() {
	faults := dlocktest.NewFaults(memdriver.New(), nil)
	client := dlock.OpenConnector(faults)
	defer client.Close()

	err := client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context) error {
		faults.EndSessions()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println(errors.Is(err, dlock.ErrLost))
	// Output: true
}

// A program locks and unlocks while the store loses what was sent, five times in a hundred. The
// same seed loses the same again.
func ExampleRates() {
	faults := dlocktest.NewFaults(memdriver.New(), dlocktest.Rates{
		Seed:         7,
		LoseRequests: 0.05,
		LoseReplies:  0.05,
	}.Decide)
	client := dlock.OpenConnector(faults)
	defer client.Close()

	for range 20 {
		err := client.RWMutex("stock/42").WithLock(context.Background(), func(context.Context) error { return nil })
		if err != nil {
			fmt.Println(err)
		}
	}
	stats := faults.Stats()
	fmt.Println(stats.RequestsLost > 0, stats.RepliesLost > 0)
	// Output: true true
}

// The reply to the first Create is lost after the store has made the node. Nothing of it stays.
func ExampleNewFaults() {
	store := memdriver.New()
	faults := dlocktest.NewFaults(store, func(_ context.Context, r dlocktest.Request) dlocktest.Fault {
		if r.Method == dlocktest.MethodCreate && r.Nth == 1 && r.Stage == dlocktest.StageReply {
			fmt.Println("lost:", r)
			return dlocktest.Fault{Lose: true}
		}
		return dlocktest.Fault{}
	})
	client := dlock.OpenConnector(faults, dlock.WithHostname("web1"))
	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("won:", lock.Name())
	fmt.Println(lock.Unlock(), client.Close(), store.Stats().Nodes)
	// Output:
	// lost: Create "stock/42" "web1-W-", reply
	// won: web1-W-0000000001
	// <nil> <nil> 0
}
