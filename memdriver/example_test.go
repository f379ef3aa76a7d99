package memdriver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

// Two sessions queue one node each. The second waits until the first one's node
// is gone, here because the first session expires.
func Example() {
	ctx := context.Background()
	store := memdriver.New()
	first, _ := store.Connect(ctx)
	second, _ := store.Connect(ctx)
	defer first.Close()
	defer second.Close()

	ahead, _ := first.Create(ctx, "stock/42", driver.NodeSpec{Prefix: "web1-W-"})
	mine, _ := second.Create(ctx, "stock/42", driver.NodeSpec{Prefix: "web2-W-"})
	fmt.Println(ahead.Name, ahead.Token, ahead.Alone())
	fmt.Println(mine.Name, mine.Token, mine.Alone())

	watch, _ := second.Watch(ctx, "stock/42", mine.Place, ahead.Node)
	defer watch.Stop()
	store.Faults().Expire(first)
	fmt.Println(<-watch.C)
	nodes, _ := second.List(ctx, "stock/42")
	fmt.Println(nodes[0] == mine.Node, first.Err())

	// Output:
	// web1-W-0000000000 1 true
	// web2-W-0000000001 2 false
	// changed
	// true session ended: it expired
}

// The reply to a successful Create is lost. Create returns an error, and the
// driver removes the node.
func ExampleFaults_LoseReply() {
	ctx := context.Background()
	store := memdriver.New()
	session, _ := store.Connect(ctx)
	defer session.Close()

	store.Faults().LoseReply(session, faults.OpCreate)
	_, err := session.Create(ctx, "stock/42", driver.NodeSpec{Prefix: "web1-W-"})
	fmt.Println(err)

	// The node is removed in the background.
	for {
		changed, _ := session.WatchQueue(ctx, "stock/42")
		nodes, _ := session.List(ctx, "stock/42")
		if len(nodes) == 0 {
			changed.Stop()
			break
		}
		<-changed.C
	}
	fmt.Println("nothing is left")

	// Output:
	// mem: create in "stock/42": no answer: store unavailable: the connection broke
	// nothing is left
}

// A program loses its lock in the middle of its work. The context of the lock
// stops the work.
func ExampleFaults_ExpireAll() {
	store := memdriver.New()
	client := dlock.NewClient(store)
	defer client.Close()

	err := client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context, _ *dlock.Lock) error {
		store.Faults().ExpireAll()
		<-ctx.Done() // stands for waiting for a database
		return context.Cause(ctx)
	})
	fmt.Println("lost:", errors.Is(err, dlock.ErrLost))
	// Output:
	// lost: true
}

// A process is paused for longer than its session lasts. When it wakes up, the
// lock's context may not have ended yet, but lock.Err already returns an error.
func ExampleFaults_PauseAll() {
	ctx := context.Background()
	store := memdriver.New(memdriver.WithSessionTimeout(10 * time.Second))
	client := dlock.NewClient(store)
	defer client.Close()

	lock, err := client.RWMutex("stock/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx = lock.Context(ctx)
	store.Faults().PauseAll(time.Minute)
	fmt.Println("context:", ctx.Err())
	fmt.Println("lost:", errors.Is(lock.Err(), dlock.ErrLost), errors.Is(lock.Unlock(), dlock.ErrLost))
	// Output:
	// context: <nil>
	// lost: true true
}

// An unknown parameter in a data source name is an error.
func ExampleDriver() {
	var d driver.Driver = memdriver.Driver{}
	_, err := d.OpenConnector("orders?timeout=5s")
	fmt.Println(err)
	// Output:
	// mem: dsn: parameter 1: "timeout" is not known
}
