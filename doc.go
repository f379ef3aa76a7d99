// Package dlock provides read-write locks that the processes of a distributed
// system share. The locks are kept in a store such as ZooKeeper.
//
// A program imports a driver for its side effect, opens a client, and takes
// locks:
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
//	lock, err := client.RWMutex("stock/42").Lock(ctx) // waits for the lock
//	if err != nil {
//		return err // the lock is not held, and there is nothing to give back
//	}
//	defer lock.Unlock()
//	return save(lock.Context(ctx), order, lock.Token())
//
// This overview has one sentence for every name and method that an application
// uses. The types are those of package [recipes], whose page has the full text
// of each method. An application imports package dlock and a driver only.
//
// # What a program can rely on
//
// This holds as long as the store keeps what it has confirmed, and the clocks of
// process and store run at the same rate, within a margin. A fail-over to an
// asynchronous replica or a paused virtual machine breaks that. The list for each
// store is in docs/use/guarantees.md, under "What breaks the guarantees".
//
//   - Exclusion: at any time one writer holds a lock, or any number of readers
//     hold it, as the store sees it.
//   - Order: a lock is granted in the order of arrival. A reader that arrives
//     after a waiting writer waits behind that writer.
//   - Loss: a lock can be lost while it is held, because its session with the
//     store ended or because an operator removed its node. If the session
//     ended, Lock.Err, Lock.Lost and Lock.Context report the loss before the
//     store grants the lock to another session.
//   - Tokens: the token of an exclusive lock is greater than the token of every
//     earlier exclusive lock of that name.
//   - Failure: if a call returns an error instead of a lock, its node is
//     removed, in the background if the store does not answer at once. If the
//     process dies, the store removes the node after the session timeout.
//
// No lock can stop a process that is paused between looking at its lock and
// writing to a resource. Such a process may write after the lock was granted to
// another one. Where that would do harm, send the token (Lock.Token) with each
// write, and let the resource refuse a token that is smaller than the greatest
// one that it has seen. Tokens of two stores cannot be compared: before a change
// to another store, read about the epoch in docs/use/guarantees.md.
//
// # Open a client
//
//   - [Open] returns the client of the store that a driver's name and a data
//     source name describe. It does no I/O.
//   - [NewClient] returns the client of the store that a connector leads to,
//     without the registry of drivers. It does no I/O.
//   - [Client].Ping makes sure that the client has a session and that the store
//     answers. If the store cannot be reached, the error matches
//     [ErrUnavailable].
//   - [Client].RWMutex returns the lock of a name. It does no I/O.
//   - [Client].Close ends the client, releases everything that it holds, and
//     waits for that, for 20 s at most.
//   - [Client].String and [Client].GoString return the session, its server and
//     its timeout in one line, for people.
//
// One [Client] serves a whole program: open it at the start and close it at the
// end.
//
// # Lock
//
//   - [RWMutex].Lock waits until the caller holds the lock exclusively.
//   - [RWMutex].RLock waits until the caller holds the lock shared.
//   - [RWMutex].TryLock is Lock without waiting for other contenders. Where Lock
//     would have to wait for one, TryLock returns [ErrLocked]. It waits for the
//     store.
//   - [RWMutex].TryRLock is RLock without waiting for other contenders.
//   - [RWMutex].WithLock calls a function while it holds the lock exclusively,
//     and unlocks.
//   - [RWMutex].WithRLock calls a function while it holds the lock shared, and
//     unlocks.
//   - [RWMutex].Name returns the lock's name.
//   - [RWMutex].String and [RWMutex].GoString return the name in one line, for
//     people.
//
// An RWMutex keeps no state: two of one name are the same lock, and each call
// is a contender of its own. Lock and RLock wait as long as ctx and
// [WithTimeout] allow. If the session ends while they wait, they join the queue
// again, at its end, on a new session.
//
// # Hold
//
//   - [Lock].Context returns a child of a context that ends when the lock is
//     lost or unlocked. Work that the lock protects runs under it.
//   - [Lock].Err returns nil while the lock is held. Call it just before a step
//     that cannot be undone: it looks at the clocks.
//   - [Lock].Lost returns a channel that closes when the lock is lost, and not
//     when it is unlocked.
//   - [Lock].Token returns the fencing token, which the resource compares.
//   - [Lock].Downgrade turns an exclusive lock into a shared one, and no writer
//     can get the lock in between.
//   - [Lock].Mode returns how the lock is held: [Shared] or [Exclusive].
//   - [Lock].Node returns the name of the lock's node in the store.
//   - [Lock].String and [Lock].GoString return name, mode, node, token and state
//     in one line, for people.
//
// Re-entry: a call of Lock or RLock with a context of Lock.Context takes the
// same lock again, at once and without a request. It returns a Lock of its own,
// which has to be unlocked, too. Each goroutine that has such a context gets the
// lock, so goroutines that share the context do not exclude each other.
//
//   - [WithoutReentry] returns a child of a context with which no lock is taken
//     again, for goroutines that have to exclude each other.
//
// A shared lock cannot be taken again exclusively: see [ErrUpgrade].
//
// # Give back
//
//   - [Lock].Unlock gives the lock back. It takes no context, so that it works
//     after a cancellation, and it returns within about 2 s.
//
// Call Unlock after a loss, too: it tells the client that the caller has stopped
// its work. After Unlock the lock is not held, whatever Unlock returns:
//
//   - nil: the lock was held until now.
//   - An error that matches [ErrLost]: the lock was lost before. Another
//     contender may have held it while the work was done.
//   - An error that matches [ErrUnlock]: the lock was held until now, but its
//     node may block other contenders for a while.
//   - An error that matches [ErrNotHeld] only: the lock was unlocked before.
//
// A deferred call of Unlock drops this result. WithLock and WithRLock keep it:
// they join an ErrLost or ErrUnlock of Unlock to the error of their function. If
// they did not get the lock, the function was not called and the error matches
// [ErrNotRun].
//
// # Options
//
// An [Option] given to Open or NewClient holds for all locks of the client. An
// Option given to Client.RWMutex holds for that RWMutex and comes last.
//
//   - [WithTimeout] limits how long Lock and RLock wait, not how long a lock is
//     held. Without it only ctx limits the wait.
//   - [WithBackOff] sets how errors of the store that may pass are retried, with
//     a [BackOff]: [BackOff].NextBackOff returns the next pause, and
//     [BackOff].Reset begins anew. By default calls retry for a minute.
//   - [WithHostname] sets the beginning of the names of nodes, which is the host
//     name by default.
//   - [WithLogger] sets where to log sessions, retries, losses and nodes that
//     remain. By default nothing is logged.
//   - [WithTrace] adds hooks: see below.
//   - [WithData] adds data to the records of nodes, for people who look at a
//     queue.
//   - [WithRetention] lets the goroutines of one client pass a lock on among
//     themselves without a request, within the limits of a [Retention].
//   - [WithoutRetention] undoes WithRetention for one lock.
//   - [WithWait] sets how a contender waits: a [Wait], whose [Wait].String
//     returns its name.
//   - [WatchPredecessor] is the Wait that watches the predecessor. It is the
//     default.
//   - [WatchQueue] is the Wait that watches the whole queue.
//   - [Poll] is the Wait that watches nothing and lists the queue again and
//     again.
//
// # Errors
//
// Match errors with [errors.Is]. An error may match several of these. Every
// error about a lock names the lock.
//
//   - [ErrLocked]: TryLock or TryRLock would have to wait for another contender.
//     Try later.
//   - [ErrTimeout]: the deadline of ctx or the time of WithTimeout has passed
//     before the lock was granted. The message names the holder. Try later.
//   - [ErrUnavailable]: the store cannot be reached, or did not answer in time.
//     Try later; after Downgrade go on as a reader.
//   - [ErrLost]: the lock was held and was lost. Stop the work, call Unlock, and
//     treat what was done last as doubtful.
//   - [ErrNotHeld]: the lock was unlocked already, or the Lock comes from a call
//     that failed. Correct the program.
//   - [ErrNotRun]: WithLock or WithRLock did not get the lock and has not called
//     the function. Look at what else the error matches.
//   - [ErrUnlock]: the lock was held to the end, but the store has not confirmed
//     the unlock. As a rule there is nothing to do: the client goes on trying.
//     If the store refuses the removal (with "zk", the error matches
//     [io/fs.ErrPermission], too), permit it, and close the client.
//   - [ErrUpgrade]: the caller holds the lock shared and wants it exclusively,
//     which would be a deadlock. Unlock first, or lock exclusively at once.
//   - [ErrClosed]: the client is closed, or was never opened.
//   - [ErrBadName]: the lock's name breaks the rules of Client.RWMutex.
//   - [ErrSessionEnded]: why a lock was lost or a hook was called: the session
//     with the store has ended. It comes together with ErrLost, or in hooks.
//
// If ctx is cancelled, the error matches [context.Canceled] and the cause. Any
// other error is the store's, such as fs.ErrPermission, or that of the function
// of WithLock.
//
// # Hooks
//
// A [Trace] is a set of functions that see what locks do, for metrics and
// tracing. Each hook gets the context of the call that it reports on, and a
// struct. A hook must be short and must not call the lock or its client.
//
//   - [Trace].Connected gets a [ConnectedInfo] after each attempt to connect.
//     The [SessionInfo] in it describes the session.
//   - [Trace].SessionEnded gets a [SessionEndedInfo] when a session has ended.
//   - [Trace].Queued gets a [QueuedInfo] when a node has joined the queue, at
//     the [Place] in it.
//   - [Trace].Waiting gets a [WaitingInfo] before a contender waits, and after
//     each wake-up that did not grant the lock. [WaitingInfo].String describes
//     it in one line.
//   - [Trace].Granted gets a [GrantedInfo] when a lock was granted.
//   - [Trace].Failed gets a [FailedInfo] when a call that locks returns an error.
//   - [Trace].Retrying gets a [RetryingInfo] before an operation is repeated.
//   - [Trace].Downgraded gets a [DowngradedInfo] when the store was told of a
//     downgrade, or could not be told.
//   - [Trace].Released gets a [ReleasedInfo] when a lock was given back.
//   - [Trace].Lost gets a [LostInfo] when a lock was lost.
//   - [Trace].Reaped gets a [ReapedInfo] when work that was left to the
//     background, a removal or a downgrade, is done or given up.
//
// # Look at a queue
//
//   - [RWMutex].Queue returns the holders and waiters of a lock, in order, for
//     people.
//   - [Contender] describes one of them, and [Contender].String does so in one
//     line.
//   - [Record] is what the node of a contender says of its process, and
//     [Record].String says it in one line.
//   - [Mode] is [Shared] or [Exclusive]. [Mode].String, [Mode].MarshalText and
//     [Mode].UnmarshalText write and read it as text, and so does [ParseMode].
//
// # Drivers
//
//   - "zk", in package [github.com/dlock-go/dlock/zkdriver], is for ZooKeeper.
//     The data source name is zk://user:password@host:port,host:port/chroot, with
//     parameters such as ?session_timeout=10s, the default, at its end. Login,
//     ports, chroot and parameters may be left out.
//   - "mem", in package [github.com/dlock-go/dlock/memdriver], is for the memory
//     of one process: for tests, and for programs that are one process. The data
//     source name is the name of a store. An empty name is a new store. Its
//     function New returns a new store for NewClient.
//   - "etcd", "redis", "postgres", "mysql" and "sqlite" are in modules of their
//     own, below github.com/dlock-go/dlock/contrib. The comments of their
//     packages describe their data source names.
//   - [Drivers] returns the names of the drivers that the program has imported.
//   - [Register] makes a driver available to Open. Drivers call it when they are
//     imported.
//
// Package [driver] has the interfaces that a driver implements, and the rules
// that it has to keep.
package dlock
