package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
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

	return client.RWMutex("stock/42").WithLock(ctx, save) // waits for the lock
}

// save runs while the lock is held. Its context ends when the lock is lost.
func save(ctx context.Context, lock *dlock.Lock) error {
	fmt.Printf("%v, token %d\n", lock.Mode(), lock.Token()) // the resource refuses smaller tokens
	return ctx.Err()
}

// Open does no I/O. A program calls Ping to learn whether the store answers.
func ExampleOpen() {
	client, err := dlock.Open("mem", "shop?session_timeout=20s", dlock.WithTimeout(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(client.Ping(ctx))
	// Output: <nil>
}

// Two clients of one store in memory compete for its locks, as two processes
// would.
func ExampleNewClient() {
	ctx := context.Background()
	store := memdriver.New()
	one, two := dlock.NewClient(store), dlock.NewClient(store)
	defer one.Close()
	defer two.Close()

	lock, _ := one.RWMutex("stock/42").Lock(ctx)
	defer lock.Unlock()
	_, err := two.RWMutex("stock/42").TryLock(ctx)
	fmt.Println(errors.Is(err, dlock.ErrLocked))
	// Output: true
}

// After a stop signal, work that already holds a lock may finish, but no other
// lock is granted.
func ExampleClient_shutdown() {
	client, _ := dlock.Open("mem", "")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	started := make(chan bool)
	var worker errgroup.Group
	worker.Go(func() error {
		// Not ctx, because this work must finish even after the signal.
		return client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context, _ *dlock.Lock) error {
			close(started)
			time.Sleep(10 * time.Millisecond)
			return ctx.Err()
		})
	})
	<-started
	stop() // has the same effect as a signal

	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println("shutdown:", client.Shutdown(grace))
	fmt.Println("work:", worker.Wait())
	_, err := client.RWMutex("stock/43").Lock(context.Background())
	fmt.Println(errors.Is(err, dlock.ErrClosed))
	// Output:
	// shutdown: <nil>
	// work: <nil>
	// true
}

func ExampleRWMutex_rLock() {
	ctx := context.Background()
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	prices := client.RWMutex("prices")

	one, _ := prices.RLock(ctx)
	defer one.Unlock()
	two, err := prices.RLock(ctx)
	fmt.Println(two.Mode(), err)
	two.Unlock()

	_, err = prices.TryLock(ctx)
	fmt.Println(errors.Is(err, dlock.ErrLocked))
	// Output:
	// shared <nil>
	// true
}

// WithLock unlocks, whatever the function does. When the lock is lost, the
// function's context ends.
func ExampleRWMutex_withLock() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()

	err := client.RWMutex("stock/42").WithLock(context.Background(), func(ctx context.Context, _ *dlock.Lock) error {
		fmt.Println("the lock is held")
		return ctx.Err()
	})
	switch {
	case errors.Is(err, dlock.ErrNotRun):
		fmt.Println("the lock was not granted, and the function was not called")
	case errors.Is(err, dlock.ErrLost):
		fmt.Println("another contender may have held the lock at the same time")
	default:
		fmt.Println(err)
	}
	// Output:
	// the lock is held
	// <nil>
}

func ExampleRWMutex_tryLock() {
	ctx := context.Background()
	store := memdriver.New()
	one, two := dlock.NewClient(store), dlock.NewClient(store)
	defer one.Close()
	defer two.Close()

	held, _ := one.RWMutex("stock/42").Lock(ctx)
	_, err := two.RWMutex("stock/42").TryLock(ctx)
	fmt.Println(errors.Is(err, dlock.ErrLocked))

	held.Unlock()
	lock, err := two.RWMutex("stock/42").TryLock(ctx)
	fmt.Println(lock.Mode(), err)
	// Output:
	// true
	// exclusive <nil>
}

func ExampleRWMutex_queue() {
	ctx := context.Background()
	client, _ := dlock.Open("mem", "", dlock.WithHostname("web1"), dlock.WithData([]byte("order 4711")))
	defer client.Close()
	stock := client.RWMutex("stock/42")
	lock, _ := stock.Lock(ctx)
	defer lock.Unlock()

	queue, err := stock.Queue(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range queue {
		fmt.Printf("%q holds: %t, %v, %q\n", c.Host, c.Holds, c.Mode, c.Record.Data)
	}
	// Output: "web1" holds: true, exclusive, "order 4711"
}

// A removed holder's lock is granted to the next contender at once, so the
// resource must compare tokens to refuse late writes of the former holder.
func ExampleRWMutex_remove() {
	ctx := context.Background()
	client, _ := dlock.Open("mem", "", dlock.WithHostname("web1"))
	defer client.Close()
	held, _ := client.RWMutex("stock/42").Lock(ctx)

	locks, err := client.Walk(ctx, "stock")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range locks {
		queue, err := client.RWMutex(name).Queue(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range queue {
			fmt.Printf("%s: %q holds: %t\n", name, c.Host, c.Holds)
			if err := client.RWMutex(name).Remove(ctx, c); err != nil {
				log.Fatal(err)
			}
		}
	}
	<-held.Lost()
	fmt.Println(errors.Is(held.Unlock(), dlock.ErrLost))
	// Output:
	// stock/42: "web1" holds: true
	// true
}

// The channel of Lost closes when an operator has removed the holder's node.
func ExampleLock_lost() {
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

// The error of Unlock tells whether the lock was lost during the work, here
// because an operator removed its node. Join it to the error of the work.
func ExampleLock_unlock() {
	store := memdriver.New()
	client := dlock.NewClient(store)
	defer client.Close()

	work := func(ctx context.Context) (err error) {
		lock, err := client.RWMutex("stock/42").Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Unlock()) }()

		ctx = lock.Context(ctx)
		store.Faults().RemoveNode("stock/42", lock.Node())
		<-ctx.Done()
		return ctx.Err()
	}
	err := work(context.Background())
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(err, dlock.ErrLost))
	// Output: true true
}

// Work under the context of a lock stops when the lock is lost, here because an
// operator removes its node.
func ExampleLock_context() {
	store := memdriver.New()
	client := dlock.NewClient(store)
	defer client.Close()

	lock, _ := client.RWMutex("stock/42").Lock(context.Background())
	defer lock.Unlock()
	ctx := lock.Context(context.Background())
	store.Faults().RemoveNode("stock/42", lock.Node())

	<-ctx.Done() // calls that use ctx end at this moment
	fmt.Println(ctx.Err(), errors.Is(context.Cause(ctx), dlock.ErrLost))
	// Output: context canceled true
}

// A downgrade turns the writer into a reader. Waiting readers join it, and no
// other writer can get the lock in between.
func ExampleLock_downgrade() {
	ctx := context.Background()
	store := memdriver.New()
	writer, reader := dlock.NewClient(store), dlock.NewClient(store)
	defer writer.Close()
	defer reader.Close()

	lock, _ := writer.RWMutex("prices").Lock(ctx)
	fmt.Println(lock.Mode())
	_ = lock.Downgrade(ctx)
	fmt.Println(lock.Mode())

	second, err := reader.RWMutex("prices").RLock(ctx)
	fmt.Println(second.Mode(), err)
	// Output:
	// exclusive
	// shared
	// shared <nil>
}

// A call with the context of a lock takes the lock again at once. The context
// identifies the holder, because goroutines in Go have no identity.
func ExampleLock_reentry() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	stock := client.RWMutex("stock/42")

	outer, _ := stock.Lock(context.Background())
	ctx := outer.Context(context.Background())

	inner, err := stock.Lock(ctx) // with context.Background(), this call would wait for outer
	fmt.Println(err, inner.Token() == outer.Token())
	inner.Unlock()
	fmt.Println(outer.Err()) // outer is still held
	outer.Unlock()
	// Output:
	// <nil> true
	// <nil>
}

// Goroutines that share the context of a lock hold the lock together, even if
// each of them calls Lock. A goroutine with a context of WithoutReentry has to
// wait.
func ExampleLock_goroutines() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	stock := client.RWMutex("stock/42")

	lock, _ := stock.Lock(context.Background())
	defer lock.Unlock()
	workers, ctx := errgroup.WithContext(lock.Context(context.Background()))
	var first, second *dlock.Lock
	workers.Go(func() (err error) { first, err = stock.Lock(ctx); return err })
	workers.Go(func() (err error) { second, err = stock.Lock(ctx); return err })
	fmt.Println(workers.Wait(), first.Mode(), second.Mode()) // both hold the lock

	_, err := stock.TryLock(dlock.WithoutReentry(lock.Context(context.Background())))
	fmt.Println(errors.Is(err, dlock.ErrLocked))
	// Output:
	// <nil> exclusive exclusive
	// true
}

// Goroutines that must exclude each other need a context that does not re-enter
// locks. They wait until the lock is free, and get it one after the other.
func ExampleWithoutReentry() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	stock := client.RWMutex("stock/42")

	lock, _ := stock.Lock(context.Background())
	held := lock.Context(context.Background())

	count := 0
	var workers errgroup.Group
	waits := dlock.WithoutReentry(context.WithoutCancel(held)) // WithoutCancel, because otherwise Unlock would end the context
	for range 3 {
		workers.Go(func() error {
			return stock.WithLock(waits, func(context.Context, *dlock.Lock) error {
				count++
				return nil
			})
		})
	}
	fmt.Println("while the lock is held:", count)
	lock.Unlock() // until now, no worker could get the lock
	fmt.Println(workers.Wait(), count)
	// Output:
	// while the lock is held: 0
	// <nil> 3
}

func ExampleWithTimeout() {
	ctx := context.Background()
	store := memdriver.New()
	holder, waiter := dlock.NewClient(store), dlock.NewClient(store, dlock.WithTimeout(10*time.Millisecond))
	defer holder.Close()
	defer waiter.Close()

	lock, _ := holder.RWMutex("stock/42").Lock(ctx)
	defer lock.Unlock()
	_, err := waiter.RWMutex("stock/42").Lock(ctx)
	fmt.Println(errors.Is(err, dlock.ErrTimeout), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleWithTrace() {
	client, _ := dlock.Open("mem", "", dlock.WithTrace(&recipes.Trace{
		Granted: func(_ context.Context, i recipes.GrantedInfo) {
			fmt.Println("granted:", i.Lock, i.Mode, i.Token)
		},
		Released: func(_ context.Context, i recipes.ReleasedInfo) {
			fmt.Println("released:", i.Lock, i.Err)
		},
	}))
	defer client.Close()

	lock, _ := client.RWMutex("stock/42").Lock(context.Background())
	lock.Unlock()
	// Output:
	// granted: stock/42 exclusive 1
	// released: stock/42 <nil>
}

func ExampleWithBackOff() {
	client, _ := dlock.Open("mem", "", dlock.WithBackOff(func() dlock.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(time.Second), 5)
	}))
	defer client.Close()
	fmt.Println(client.Ping(context.Background()))
	// Output: <nil>
}

// A firewall that cuts idle connections breaks watches. With Poll, a waiter
// needs no watch: it lists the queue about every ten seconds.
func ExampleWithWait() {
	client, _ := dlock.Open("mem", "", dlock.WithWait(recipes.Poll(10*time.Second)))
	defer client.Close()
	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	fmt.Println(lock.Mode(), err)
	// Output: exclusive <nil>
}

// Account is a resource that checks tokens. Package fence does the same for
// databases and HTTP services.
type Account struct {
	mu      sync.Mutex
	balance int
	token   int64 // the greatest token seen so far
}

var errStale = errors.New("stale token: the lock was granted to another contender")

// Set refuses a writer whose token is smaller than that of an earlier writer.
func (a *Account) Set(balance int, token int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.token {
		return errStale
	}
	a.balance, a.token = balance, token
	return nil
}

// Get refuses a reader whose token is smaller than that of the last writer. It
// does not store the reader's token, because readers hold the lock together, so
// the order of their tokens means nothing.
func (a *Account) Get(token int64) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.token {
		return 0, errStale
	}
	return a.balance, nil
}

// The first holder is paused and loses the lock. When it wakes up, it writes
// before it checks the lock, and the account refuses that write.
func ExampleLock_token() {
	ctx := context.Background()
	store := memdriver.New()
	paused, next := dlock.NewClient(store), dlock.NewClient(store)
	defer paused.Close()
	defer next.Close()
	account := new(Account)

	first, _ := paused.RWMutex("account/7").Lock(ctx)
	store.Faults().RemoveQueue("account/7") // as if the holder's session had expired
	second, _ := next.RWMutex("account/7").Lock(ctx)

	fmt.Println("second:", account.Set(70, second.Token()))
	fmt.Println("first:", account.Set(100, first.Token()))
	balance, _ := account.Get(second.Token())
	fmt.Println("balance:", balance)
	// Output:
	// second: <nil>
	// first: stale token: the lock was granted to another contender
	// balance: 70
}

// A transfer needs the locks of both accounts. LockAll takes them in the order of
// their names, so that two transfers in opposite directions do not deadlock.
func ExampleLockAll() {
	ctx := context.Background()
	client, _ := dlock.Open("mem", "", dlock.WithHostname("web1"))
	defer client.Close()

	from, to := client.RWMutex("account/7"), client.RWMutex("account/3")
	locks, err := dlock.LockAll(ctx, from, to)
	if err != nil {
		log.Fatal(err)
	}
	ctx = locks.Context(ctx) // ends when one of the locks is lost
	for _, lock := range locks.All() {
		fmt.Println(lock)
	}
	fmt.Println(ctx.Err(), locks.Unlock())
	// Output:
	// account/7: exclusive, web1-W-0000000000, token 2, held
	// account/3: exclusive, web1-W-0000000000, token 1, held
	// <nil> <nil>
}

// Run calls the function whenever this process leads. The term ends when the
// function returns.
func ExampleElection() {
	ctx, stop := context.WithCancel(context.Background()) // stop has the same effect as a signal
	store := memdriver.New()
	one, two := dlock.NewClient(store), dlock.NewClient(store)
	defer one.Close()
	defer two.Close()

	scheduler := one.Election("scheduler", dlock.WithData([]byte("10.0.0.7:8080")))
	err := scheduler.Run(ctx, func(ctx context.Context, term *dlock.Lock) error {
		leader, err := two.Election("scheduler").Leader(ctx) // from another process
		fmt.Println(leader.Record.Data, leader.Token == term.Token(), err)
		stop()
		<-ctx.Done() // ends because stop has cancelled its parent
		return nil
	})
	fmt.Println(err)
	_, err = two.Election("scheduler").Leader(context.Background())
	fmt.Println(errors.Is(err, dlock.ErrNoLeader))
	// Output:
	// 10.0.0.7:8080 true <nil>
	// <nil>
	// true
}

func ExampleElection_observe() {
	client, _ := dlock.Open("mem", "")
	defer client.Close()
	e := client.Election("scheduler", dlock.WithData([]byte("10.0.0.7:8080")))
	term, _ := e.Campaign(context.Background())
	for leader, err := range e.Observe(context.Background()) {
		if err != nil {
			log.Fatal(err) // or go on: the store may come back
		}
		if leader.Node == "" {
			fmt.Println("nobody leads")
			break
		}
		fmt.Println(leader.Record.Data)
		term.Unlock() // resigns
	}
	// Output:
	// 10.0.0.7:8080
	// nobody leads
}
