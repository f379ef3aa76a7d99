package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
)

func Example() {
	if err := ship(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: exclusive, token 1
}

func ship(ctx context.Context) error {
	client, err := dlock.Open("mem", "") // or "zk", "zk://zk1:2181,zk2:2181,zk3:2181/locks"
	if err != nil {
		return err
	}
	defer client.Close()

	lock, err := client.RWMutex("stock/42").Lock(ctx) // waits for its turn
	if err != nil {
		return err
	}
	defer lock.Unlock()

	ctx = lock.Context(ctx) // ends when the lock is lost
	return save(ctx, lock)
}

func save(ctx context.Context, lock *dlock.Lock) error {
	fmt.Printf("%v, token %d\n", lock.Mode(), lock.Token()) // the resource refuses smaller tokens
	return ctx.Err()
}

// WithLock locks, calls a function and unlocks, whatever the function does. Its context
// ends when the lock is lost.
func ExampleRWMutex_WithLock() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()

	err := client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context) error {
		fmt.Println("inside")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// inside
	// <nil>
}

// Another client holds the lock, so TryLock does not wait.
func ExampleRWMutex_TryLock() {
	ctx := context.Background()
	store := memdriver.New()
	one, two := dlock.NewClient(store), dlock.NewClient(store)
	defer one.Close()
	defer two.Close()

	held, _ := one.RWMutex("stock/42").Lock(ctx)
	_, err := two.RWMutex("stock/42").TryLock(ctx)
	fmt.Println(errors.Is(err, dlock.ErrLocked), err)

	held.Unlock()
	lock, err := two.RWMutex("stock/42").TryLock(ctx)
	fmt.Println(lock.Mode(), err)
	// Output:
	// true dlock: stock/42: locked by somebody else
	// exclusive <nil>
}

// An operator deletes the node of a lock that is held. The holder is told.
func ExampleLock_Lost() {
	ctx := context.Background()
	store := memdriver.New()
	client := dlock.NewClient(store)
	defer client.Close()

	lock, _ := client.RWMutex("stock/42").Lock(ctx)
	store.Faults().RemoveNode("stock/42", lock.Node())
	<-lock.Lost()
	fmt.Println(errors.Is(lock.Err(), dlock.ErrLost))
	fmt.Println(errors.Is(lock.Unlock(), dlock.ErrLost))
	// Output:
	// true
	// true
}

// Work that runs under the lock's context stops when the lock is lost, here because
// an operator deletes its node.
func ExampleLock_Context() {
	store := memdriver.New()
	client := dlock.NewClient(store)
	defer client.Close()

	lock, _ := client.RWMutex("stock/42").Lock(context.Background())
	ctx := lock.Context(context.Background())
	store.Faults().RemoveNode("stock/42", lock.Node())

	<-ctx.Done() // as any call does that takes a context
	fmt.Println(ctx.Err(), errors.Is(context.Cause(ctx), dlock.ErrLost))
	// Output: context canceled true
}

// After a downgrade readers come in, and no writer can come between.
func ExampleLock_Downgrade() {
	ctx := context.Background()
	store := memdriver.New()
	writer, reader := dlock.NewClient(store), dlock.NewClient(store)
	defer writer.Close()
	defer reader.Close()

	lock, _ := writer.RWMutex("prices").Lock(ctx)
	fmt.Println(lock.Mode())
	_ = lock.Downgrade(ctx)
	fmt.Println(lock.Mode())

	beside, err := reader.RWMutex("prices").RLock(ctx)
	fmt.Println(beside.Mode(), err)
	// Output:
	// exclusive
	// shared
	// shared <nil>
}

// The context of a lock enters the lock again, at once. Go has no other way to
// tell that it is the holder who asks.
func ExampleLock_Context_reentrancy() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	stock := client.RWMutex("stock/42")

	outer, _ := stock.Lock(context.Background())
	inside := outer.Context(context.Background())

	inner, err := stock.Lock(inside) // context.Background() would wait for outer
	fmt.Println(err, inner.Token() == outer.Token())
	inner.Unlock()
	fmt.Println(outer.Err()) // still held
	outer.Unlock()
	// Output:
	// <nil> true
	// <nil>
}

// Goroutines that share the context of a lock are inside together, also if each of them
// calls Lock. TryLock with a context of WithoutReentry is kept out.
func ExampleLock_Context_goroutines() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	stock := client.RWMutex("stock/42")

	lock, _ := stock.Lock(context.Background())
	defer lock.Unlock()
	workers, ctx := errgroup.WithContext(lock.Context(context.Background()))
	var first, second *dlock.Lock
	workers.Go(func() (err error) { first, err = stock.Lock(ctx); return err })
	workers.Go(func() (err error) { second, err = stock.Lock(ctx); return err })
	fmt.Println(workers.Wait(), first.Mode(), second.Mode()) // both are inside

	_, err := stock.TryLock(dlock.WithoutReentry(lock.Context(context.Background())))
	fmt.Println(errors.Is(err, dlock.ErrLocked))
	// Output:
	// <nil> exclusive exclusive
	// true
}

// Goroutines that must take turns get a context that enters no lock again. They
// wait until the lock is free, one after the other.
func ExampleWithoutReentry() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	stock := client.RWMutex("stock/42")

	lock, _ := stock.Lock(context.Background())
	inside := lock.Context(context.Background())

	count := 0
	var workers errgroup.Group
	outside := dlock.WithoutReentry(context.WithoutCancel(inside)) // Unlock ends inside
	for range 3 {
		workers.Go(func() error {
			return stock.WithLock(outside, func(context.Context) error {
				count++
				return nil
			})
		})
	}
	fmt.Println("while the lock is held:", count)
	lock.Unlock() // a worker cannot enter before
	fmt.Println(workers.Wait(), count)
	// Output:
	// while the lock is held: 0
	// <nil> 3
}

// Account is a resource that checks tokens. In a database the same is done by one statement:
//
//	UPDATE account SET balance = $1, token = $2 WHERE id = $3 AND token <= $2
type Account struct {
	mu      sync.Mutex
	balance int
	token   int64 // the highest one seen
}

var errStale = errors.New("stale token: the lock has gone to somebody else")

// Set refuses a writer that is older than one who was here before.
func (a *Account) Set(balance int, token int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.token {
		return errStale
	}
	a.balance, a.token = balance, token
	return nil
}

// Get refuses a reader that is older than the last writer. It does not raise the
// token: readers hold the lock together, and the tokens among them mean nothing.
func (a *Account) Get(token int64) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.token {
		return 0, errStale
	}
	return a.balance, nil
}

// A holder is paused, and the store gives its lock to the next one. When the first one wakes up it writes
// before it has looked whether it still holds the lock. The account refuses.
func ExampleLock_Token() {
	ctx := context.Background()
	store := memdriver.New()
	paused, next := dlock.NewClient(store), dlock.NewClient(store)
	defer paused.Close()
	defer next.Close()
	account := new(Account)

	first, _ := paused.RWMutex("account/7").Lock(ctx)
	store.Faults().RemoveQueue("account/7") // its session has timed out, say, while it slept
	second, _ := next.RWMutex("account/7").Lock(ctx)

	fmt.Println("second:", account.Set(70, second.Token()))
	fmt.Println("first:", account.Set(100, first.Token()))
	balance, _ := account.Get(second.Token())
	fmt.Println("balance:", balance)
	// Output:
	// second: <nil>
	// first: stale token: the lock has gone to somebody else
	// balance: 70
}
