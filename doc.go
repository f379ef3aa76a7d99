// Package dlock provides read-write locks that the processes of a distributed
// system share. The locks are kept in a store such as ZooKeeper or PostgreSQL. A
// program imports a driver for its store, opens a client, and takes locks:
//
//	import (
//		"github.com/dlock-go/dlock"
//		_ "github.com/dlock-go/dlock/zkdriver"
//	)
//
//	client, err := dlock.Open("zk", "zk://zk1:2181,zk2:2181,zk3:2181/locks")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	// waits for the lock, calls the function while holding it, and unlocks
//	err = client.RWMutex("stock/42").WithLock(ctx, func(ctx context.Context, lock *dlock.Lock) error {
//		return save(ctx, order, lock.Token())
//	})
//
// A lock can be lost while it is held. The function's ctx then ends, and WithLock
// returns [ErrLost]. Have the resource check the token where a late write would do
// harm. The page docs/use/guarantees.md says what is guaranteed under which
// conditions. After Lock instead of WithLock, work under lock.Context, and return
// the error of lock.Unlock, which tells of a loss.
//
// The types are aliases for those of package [recipes], which documents their
// methods.
//
// # Errors
//
// Match errors with [errors.Is]; one may match several. See [ErrLocked] for all.
//
// # Drivers
//
// "zk" is in package [github.com/dlock-go/dlock/zkdriver], and "mem" for tests in
// [github.com/dlock-go/dlock/memdriver]. "etcd", "nats", "redis", "postgres",
// "mysql" and "sqlite" are modules below github.com/dlock-go/dlock/contrib. The
// comment of a driver's package describes its data source names.
//
// # Calls by task
//
//   - Check the store at the start: [recipes.Client.Ping]; find out why it fails:
//     [recipes.Client.Check]; end: [recipes.Client.Shutdown]
//   - Lock: the methods of [RWMutex]; several locks at once: [LockAll]; in most
//     of several stores: package [github.com/dlock-go/dlock/majority]
//   - Run once: [recipes.RWMutex.Once], [recipes.RWMutex.OncePer]
//   - Elect a leader: [Election]; take units of a number: [Semaphore]; divide
//     work among processes: package [github.com/dlock-go/dlock/shards]
//   - Notice a loss: [recipes.Lock.Context], [recipes.Lock.Err]; refuse late
//     writes: [recipes.Lock.Token]; end a hold that hangs: [WithMaxHold]
//   - Let readers in: [recipes.Lock.Downgrade]; give way to waiters:
//     [recipes.Lock.Wanted]
//   - Lock again: any call with [recipes.Lock.Context]; not: [WithoutReentry]
//   - Store a value: [recipes.Lock.SetValue], [recipes.RWMutex.Value]
//   - Show a queue: [recipes.RWMutex.Queue]; free a lock: [recipes.RWMutex.Remove]
package dlock
