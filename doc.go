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
// Match errors with [errors.Is]. One error may match several of these:
//
//   - [ErrLocked]: TryLock or TryRLock would have to wait for another contender.
//   - [ErrQueueFull]: as many contenders are ahead as [WithMaxQueue] allows.
//   - [ErrTimeout]: the deadline of ctx or the time of [WithTimeout] has passed.
//     The message names the holder. The error matches [context.DeadlineExceeded],
//     and ErrUnavailable if the store did not answer.
//   - [ErrUnavailable]: the store cannot be reached or did not answer in time. Try
//     later. If Downgrade returned it, go on as a reader.
//   - [ErrLost]: the lock was held and lost. Another contender may hold it. Stop,
//     call Unlock, and treat what was done last as doubtful.
//   - [ErrSessionEnded]: why a lock was lost, or why a hook was called.
//   - [ErrUnlock]: the lock was held to the end, but the store has not confirmed
//     that its node is removed. The client keeps trying. If the store refuses (with
//     "zk" the error matches [io/fs.ErrPermission]), permit it and close the client.
//   - [ErrNotHeld]: the lock was unlocked before, or the Lock comes from a call
//     that failed.
//   - [ErrNotRun]: WithLock or WithRLock did not get the lock, so it has not called
//     the function. The error matches that of Lock or RLock, too.
//   - [ErrUpgrade]: the caller holds the lock shared and wants it exclusively, which
//     would be a deadlock. Unlock first, or lock exclusively from the start.
//   - [ErrClosed]: the client is closed or shutting down, or was never opened.
//   - [ErrGone]: the contender that Remove was called for has left the queue.
//   - [ErrBadName]: the name breaks the rules of [recipes.Client.RWMutex].
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
//   - Give the lock back: [recipes.Lock.Unlock]
//   - Notice a loss: [recipes.Lock.Context], [recipes.Lock.Err], [recipes.Lock.Lost]
//   - Refuse late writes: [recipes.Lock.Token]
//   - Let readers in: [recipes.Lock.Downgrade]
//   - Lock again: Lock or RLock with [recipes.Lock.Context]; not: [WithoutReentry]
//   - Describe a lock: [recipes.Lock.Mode], [recipes.Lock.Node]
//   - Show a queue: [recipes.RWMutex.Queue]; names of modes: [ParseMode]
//   - Find locks: [recipes.Client.Walk]; free one: [recipes.RWMutex.Remove]
//   - Limit the wait, retry: [WithTimeout], [WithMaxQueue], [WithBackOff]
//   - Pass a lock on within a client: [WithRetention], [WithoutRetention]
//   - Choose how to wait: [WithWait], [WatchPredecessor], [WatchQueue], [Poll]
//   - Log, count, trace: [WithLogger], [WithTrace], [WithLeakLog]
//   - Tell operators whose node it is: [WithHostname], [WithData]
package dlock
