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
//	err = client.RWMutex("stock/42").WithLock(ctx, func(ctx context.Context) error {
//		return save(ctx, order, dlock.FromContext(ctx).Token())
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
// Match errors with [errors.Is]. The variables below say what each means; see
// [ErrLocked] for all of them. One error may match several.
//
// # Drivers
//
// "zk" is in package [github.com/dlock-go/dlock/zkdriver], and "mem" for tests in
// [github.com/dlock-go/dlock/memdriver]. "etcd", "redis", "postgres", "mysql" and
// "sqlite" are modules below github.com/dlock-go/dlock/contrib. The comment of a
// driver's package describes its data source names.
//
// # Calls by task
//
//   - Open a store: [Open], [NewClient]; drivers: [Drivers], [Register]
//   - Check the store: [recipes.Client.Ping]; find out why: [recipes.Client.Diagnose]
//   - End: [recipes.Client.Shutdown], [recipes.Client.Close]
//   - Name a lock: [recipes.Client.RWMutex], [recipes.RWMutex.Name]
//   - Lock: [recipes.RWMutex.Lock], [recipes.RWMutex.RLock]
//   - Lock or fail: [recipes.RWMutex.TryLock], [recipes.RWMutex.TryRLock]
//   - Run under a lock: [recipes.RWMutex.WithLock], [recipes.RWMutex.WithRLock],
//     [FromContext]
//   - Lock several at once: [LockAll], [TryLockAll], [recipes.RWMutex.RLocker]
//   - Take units of a number: [recipes.Client.Semaphore]
//   - Elect a leader: [recipes.Client.Election]
//   - Divide work among processes: package [github.com/dlock-go/dlock/shards]
//   - Hold a lock in more than half of several stores: [NewMajority]
//   - Give the lock back: [recipes.Lock.Unlock]
//   - End a hold that hangs: [WithMaxHold]
//   - Run once: [recipes.RWMutex.Once], [recipes.RWMutex.OncePer]
//   - Keep a value: [recipes.Lock.Keep], [recipes.RWMutex.Kept]
//   - Notice a loss: [recipes.Lock.Context], [recipes.Lock.Err], [recipes.Lock.Lost]
//   - Give way to a waiter: [recipes.Lock.Wanted]
//   - Refuse late writes: [recipes.Lock.Token]
//   - Let readers in: [recipes.Lock.Downgrade]
//   - Lock again: Lock or RLock with [recipes.Lock.Context]; not: [WithoutReentry]
//   - Describe a lock: [recipes.Lock.Mode], [recipes.Lock.Node]
//   - Show a queue: [recipes.RWMutex.Queue], [recipes.RWMutex.Observe]; names of modes:
//     [ParseMode]
//   - Find locks: [recipes.Client.Walk]; free one: [recipes.RWMutex.Remove]
//   - Limit the wait, retry: [WithTimeout], [WithMaxQueue], [WithBackOff]
//   - Pass a lock on within a client: [WithRetention], [WithoutRetention]
//   - Choose how to wait: [WithWait], [WatchPredecessor], [WatchQueue], [Poll]
//   - Log, count, trace: [WithLogger], [WithTrace], [WithLeakLog]
//   - Tell operators whose node it is: [WithHostname], [WithData]
package dlock
