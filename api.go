package dlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// Errors to match with [errors.Is].
var (
	// ErrLocked means that TryLock or TryRLock would have to wait for another
	// contender.
	ErrLocked = recipes.ErrLocked
	// ErrQueueFull means that the call would have to wait, but as many
	// contenders are ahead as [WithMaxQueue] allows.
	ErrQueueFull = recipes.ErrQueueFull
	// ErrTimeout means that the deadline of ctx or the time of [WithTimeout] has
	// passed. The message names the holder. The error matches
	// [context.DeadlineExceeded], and ErrUnavailable if the store did not answer.
	ErrTimeout = recipes.ErrTimeout
	// ErrUnavailable means that the store cannot be reached or did not answer in
	// time. Try later. If Downgrade returned it, continue as a reader.
	ErrUnavailable = driver.ErrUnavailable
	// ErrLost means that the lock was held and then lost. Another contender may
	// hold it now. Stop the work, call Unlock, and do not rely on the latest
	// writes.
	ErrLost = recipes.ErrLost
	// ErrMaxHold means that the lock counts as lost because it was held for longer
	// than [WithMaxHold] allows.
	ErrMaxHold = recipes.ErrMaxHold
	// ErrSessionEnded means that the client's session with the store has ended.
	// The errors of locks that were lost for this reason match it, too.
	ErrSessionEnded = driver.ErrSessionEnded
	// ErrUnlock means that the lock was held until Unlock, but the store has not
	// confirmed that the lock's node is removed. The client keeps trying. If the
	// store denies permission (with "zk" the error matches [io/fs.ErrPermission]),
	// grant it and close the client.
	ErrUnlock = recipes.ErrUnlock
	// ErrNotHeld means that the lock was already unlocked, or that the Lock comes
	// from a call that failed.
	ErrNotHeld = recipes.ErrNotHeld
	// ErrNotRun means that WithLock or WithRLock did not get the lock, so it has
	// not called the function. The error also wraps the one that Lock or RLock
	// would return, such as ErrTimeout.
	ErrNotRun = recipes.ErrNotRun
	// ErrNotRecorded means that the function of Once or OncePer has succeeded, but
	// the store has not recorded that. Another call may run it again.
	ErrNotRecorded = recipes.ErrNotRecorded
	// ErrUpgrade means that the caller holds the lock shared and wants it
	// exclusively, too, which would deadlock. Unlock first, or lock exclusively
	// from the start.
	ErrUpgrade = recipes.ErrUpgrade
	// ErrNoLeader means that nobody leads the election.
	ErrNoLeader = recipes.ErrNoLeader
	// ErrClosed means that the client is closed or shutting down.
	ErrClosed = recipes.ErrClosed
	// ErrGone means that the contender to remove has already left the queue.
	ErrGone = recipes.ErrGone
	// ErrBadName means that the name breaks the rules of
	// [recipes.Client.RWMutex].
	ErrBadName = recipes.ErrBadName
)

// Client is a client of one store. Most programs need only one Client: see
// [recipes.Client].
//
//	func (c *Client) RWMutex(name string, opts ...Option) *RWMutex
//	func (c *Client) Election(name string, opts ...Option) *Election
//	func (c *Client) Semaphore(name string, n int, opts ...Option) *Semaphore
//	func (c *Client) Ping(ctx context.Context) error
//	func (c *Client) Connected() error
//	func (c *Client) Walk(ctx context.Context, prefix string) ([]string, error)
//	func (c *Client) Check(ctx context.Context) ([]driver.Finding, error)
//	func (c *Client) Shutdown(ctx context.Context) error
//	func (c *Client) Close() error
//	func (c *Client) Trace() *Trace
//	func (c *Client) String() string
//	func (c *Client) GoString() string
type Client = recipes.Client

// RWMutex is a read-write lock that all clients of a store share under one name:
// see [recipes.RWMutex].
//
//	func (m *RWMutex) Lock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) RLock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) TryLock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) TryRLock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) WithLock(ctx context.Context,
//		f func(ctx context.Context, l *Lock) error) error
//	func (m *RWMutex) WithRLock(ctx context.Context,
//		f func(ctx context.Context, l *Lock) error) error
//	func (m *RWMutex) RLocker() Locker
//	func (m *RWMutex) Once(ctx context.Context, tick time.Time,
//		f func(ctx context.Context, l *Lock) error) (ran bool, err error)
//	func (m *RWMutex) OncePer(ctx context.Context, period time.Duration,
//		f func(ctx context.Context, l *Lock) error) (ran bool, err error)
//	func (m *RWMutex) Value(ctx context.Context) (value []byte, token int64, err error)
//	func (m *RWMutex) Queue(ctx context.Context) ([]Contender, error)
//	func (m *RWMutex) Observe(ctx context.Context) iter.Seq2[[]Contender, error]
//	func (m *RWMutex) Remove(ctx context.Context, c Contender) error
//	func (m *RWMutex) Name() string
//	func (m *RWMutex) String() string
//	func (m *RWMutex) GoString() string
type RWMutex = recipes.RWMutex

// Semaphore is a number of units that all clients of a store share under one
// name: see [recipes.Semaphore].
//
//	func (s *Semaphore) Acquire(ctx context.Context, weight int) (*Lock, error)
//	func (s *Semaphore) TryAcquire(ctx context.Context, weight int) (*Lock, error)
//	func (s *Semaphore) Locker(weight int) Locker
//	func (s *Semaphore) Queue(ctx context.Context) ([]Contender, error)
//	func (s *Semaphore) Name() string
//	func (s *Semaphore) String() string
//	func (s *Semaphore) GoString() string
type Semaphore = recipes.Semaphore

// Lock is a lock that is held until Unlock, or until it is lost: see
// [recipes.Lock].
//
//	func (l *Lock) Unlock() error
//	func (l *Lock) Context(parent context.Context) context.Context
//	func (l *Lock) Err() error
//	func (l *Lock) Lost() <-chan struct{}
//	func (l *Lock) Wanted() <-chan struct{}
//	func (l *Lock) Token() int64
//	func (l *Lock) SetValue(ctx context.Context, value []byte) error
//	func (l *Lock) Downgrade(ctx context.Context) error
//	func (l *Lock) Mode() Mode
//	func (l *Lock) Node() string
//	func (l *Lock) String() string
//	func (l *Lock) GoString() string
type Lock = recipes.Lock

// LockAll takes all locks, in the order of their names, or none: see
// [recipes.LockAll].
func LockAll(ctx context.Context, lockers ...Locker) (*Locks, error) {
	return recipes.LockAll(ctx, lockers...)
}

// TryLockAll is like LockAll, but takes each lock with TryLock: see
// [recipes.TryLockAll].
func TryLockAll(ctx context.Context, lockers ...Locker) (*Locks, error) {
	return recipes.TryLockAll(ctx, lockers...)
}

// Locker takes one lock, such as an RWMutex or its RLocker: see
// [recipes.Locker].
type Locker = recipes.Locker

// Locks are the locks that LockAll has taken: see [recipes.Locks].
//
//	func (l *Locks) All() []*Lock
//	func (l *Locks) Tokens() []int64
//	func (l *Locks) Unlock() error
//	func (l *Locks) Context(parent context.Context) context.Context
//	func (l *Locks) Err() error
//	func (l *Locks) Lost() <-chan struct{}
//	func (l *Locks) String() string
//	func (l *Locks) GoString() string
type Locks = recipes.Locks

// Election chooses one leader among all processes that campaign under one name:
// see [recipes.Election].
//
//	func (e *Election) Run(ctx context.Context,
//		lead func(ctx context.Context, term *Lock) error) error
//	func (e *Election) Campaign(ctx context.Context) (*Lock, error)
//	func (e *Election) Leader(ctx context.Context) (Contender, error)
//	func (e *Election) Observe(ctx context.Context) iter.Seq2[Contender, error]
//	func (e *Election) Name() string
//	func (e *Election) String() string
//	func (e *Election) GoString() string
type Election = recipes.Election

// FromContext returns the Lock that ctx belongs to, for code that the function
// of WithLock calls: see [recipes.FromContext].
func FromContext(ctx context.Context) *Lock { return recipes.FromContext(ctx) }

// WithoutReentry returns a child of ctx that does not re-enter locks: see
// [recipes.WithoutReentry].
func WithoutReentry(ctx context.Context) context.Context { return recipes.WithoutReentry(ctx) }

// Mode is how a lock is held or requested: see [recipes.Mode].
type Mode = recipes.Mode

const (
	Shared    Mode = recipes.Shared    // held by any number of readers together
	Exclusive Mode = recipes.Exclusive // held by one writer alone
)

// Contender is a holder or waiter as RWMutex.Queue shows it: see
// [recipes.Contender].
type Contender = recipes.Contender

// Record describes the process that created a node: see [recipes.Record].
type Record = recipes.Record

// Option configures a client or a lock. Options of [Open] and [NewClient] apply
// to all locks of the client. Options of Client.RWMutex apply only to that
// RWMutex, after those of the client.
type Option = recipes.Option

// WithTimeout limits how long Lock and RLock wait, not how long a lock is held:
// see [recipes.WithTimeout].
func WithTimeout(d time.Duration) Option { return recipes.WithTimeout(d) }

// WithMaxQueue makes Lock and RLock fail at once if too many contenders are
// ahead: see [recipes.WithMaxQueue].
func WithMaxQueue(n int) Option { return recipes.WithMaxQueue(n) }

// WithMaxHold limits how long a lock is held, in case its holder hangs: see
// [recipes.WithMaxHold].
func WithMaxHold(d time.Duration) Option { return recipes.WithMaxHold(d) }

// WithBackOff sets how requests are retried after temporary errors of the
// store: see [recipes.WithBackOff].
func WithBackOff(newBackOff func() BackOff) Option { return recipes.WithBackOff(newBackOff) }

// BackOff decides how long to wait between retries: see [recipes.BackOff].
type BackOff = recipes.BackOff

// WithHostname sets the prefix of node names: see [recipes.WithHostname].
func WithHostname(name string) Option { return recipes.WithHostname(name) }

// WithLogger sets the logger; by default almost nothing is logged: see
// [recipes.WithLogger].
func WithLogger(l *slog.Logger) Option { return recipes.WithLogger(l) }

// WithReadOnly makes a client that shows locks but takes none: see
// [recipes.WithReadOnly].
func WithReadOnly() Option { return recipes.WithReadOnly() }

// WithData adds data to the [Record] of each node: see [recipes.WithData].
func WithData(data []byte) Option { return recipes.WithData(data) }

// WithWait sets how a contender waits for its turn: see [recipes.WithWait].
func WithWait(w recipes.Wait) Option { return recipes.WithWait(w) }

// WithTrace adds hooks that observe locks: see [recipes.WithTrace].
func WithTrace(t *recipes.Trace) Option { return recipes.WithTrace(t) }
