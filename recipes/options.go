package recipes

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// Option configures a client and all its locks, or a single lock.
type Option func(*options)

type options struct {
	timeout   time.Duration
	backOff   func() entry.BackOff
	host      string // prefix of node names
	logger    *slog.Logger
	loggerSet bool // whether WithLogger was used
	trace     *Trace
	recipe    string // empty for the recipe's own name
	wait      Wait
	maxQueue  int           // zero or less: no limit
	maxHold   time.Duration // zero or less: no limit
	record    []byte        // the same in the Record of every node
	recordErr error         // the error for data that WithData rejected
	readOnly  bool
}

func (o options) with(opts []Option) options {
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

func defaults() options {
	return options{
		backOff: entryBackOff(defaultBackOff),
		logger:  slog.New(slog.DiscardHandler),
		trace:   new(Trace),
		record:  recordTail(nil),
		host:    systemHostname(),
	}
}

// WithTimeout limits how long Lock and RLock wait if the context has no earlier
// deadline. It is not a lease time: a granted lock is held until Unlock or
// until it is lost. TryLock and TryRLock do not wait for other contenders, but
// the limit applies to their requests. Zero or less means no limit, which is
// the default.
func WithTimeout(d time.Duration) Option {
	return func(o *options) { o.timeout = d }
}

// WithMaxQueue makes Lock and RLock return [ErrQueueFull] at once, instead of
// waiting, if n or more contenders are ahead when the call joins the queue. With
// n = 1 they never wait. Zero or less means no limit, which is the default.
//
// Every node ahead in the queue counts, even those of calls that are about to
// give up. A call that need not wait, such as a reader behind readers, is never
// refused. Nor is a call that rejoins because its session has ended.
//
// The limit costs at most one List, and no request if the lock is free or the
// driver's Create has returned the nodes ahead.
func WithMaxQueue(n int) Option {
	return func(o *options) { o.maxQueue = n }
}

// WithBackOff sets how requests are retried after temporary errors of the
// store; see [BackOff].
//
// newBackOff is called, perhaps concurrently, for each call of Lock or RLock
// that meets such an error. It is also called for background work such as
// removing nodes, which continues even if its back-off gives up.
//
// Nil means the default: exponential back-off with jitter, from 20 ms to 2 s,
// which gives up when the store has failed for a minute.
func WithBackOff(newBackOff func() BackOff) Option {
	if newBackOff == nil {
		newBackOff = defaultBackOff
	}
	return func(o *options) { o.backOff = entryBackOff(newBackOff) }
}

// BackOff decides how long to wait before a failed request is retried. It is
// implemented by the types of github.com/cenkalti/backoff, in all major
// versions so far.
type BackOff interface {
	// NextBackOff returns how long to wait; if negative, give up.
	NextBackOff() time.Duration
	// Reset is called before the first wait after a success.
	Reset()
}

// giveUpAfter limits how long the default back-off retries without a success.
// Otherwise a wrong address would make callers wait forever.
const giveUpAfter = time.Minute

func defaultBackOff() BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(giveUpAfter),
	)
}

func entryBackOff(newBackOff func() BackOff) func() entry.BackOff {
	return func() entry.BackOff {
		b := newBackOff()
		if b == nil {
			b = defaultBackOff()
		}
		return entry.BackOff{Next: b.NextBackOff, Reset: b.Reset}
	}
}

// WithHostname sets the prefix of node names, which defaults to os.Hostname.
// Bytes outside [A-Za-z0-9._-] are percent-encoded, the result is cut at 200
// bytes, and an empty name becomes "unknown". The name only helps people who
// inspect a queue, and need not be unique.
func WithHostname(name string) Option {
	encoded := encodeHostname(name)
	return func(o *options) { o.host = encoded }
}

// WithLogger sets the logger for events of interest to operators: sessions that
// begin and end, retries, losses, and nodes that could not be removed at once.
//
// With a nil logger nothing is logged. Without this option, the client logs a
// single warning, to slog.Default, if the store has never answered and a call
// has waited for 5 s.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return func(o *options) { o.logger, o.loggerSet = l, true }
}

// WithReadOnly makes a client that only reads, with Walk, Queue, Observe, Value
// and Election.Leader. All other methods return an error that matches
// [errors.ErrUnsupported]. If the driver implements driver.Observer, the client
// needs no right to write, leaves nothing in the store, may use a replica, and
// connects at once, even after a loss of data. It is an option of a client, not
// of a lock.
func WithReadOnly() Option {
	return func(o *options) { o.readOnly = true }
}

// WithTrace adds hooks that observe a lock; see [Trace]. Hooks of several
// traces are called in the order of the options, those of the client before
// those of the lock. A nil trace adds nothing.
func WithTrace(t *Trace) Option {
	if t == nil {
		t = new(Trace)
	}
	return func(o *options) { o.trace = o.trace.and(t) }
}

// WithData attaches data to the lock's nodes, shown by [RWMutex.Queue] to
// people who inspect a queue. The limit is 65,536 bytes. With longer data,
// every use of the lock fails without a request.
func WithData(data []byte) Option {
	if len(data) > maxUserData {
		err := fmt.Errorf("the data of a lock may have at most %d bytes, got %d", maxUserData, len(data))
		return func(o *options) { o.recordErr = err }
	}
	tail := recordTail(data)
	return func(o *options) { o.record, o.recordErr = tail, nil }
}

// maxUserData is the limit for WithData. Encoded as JSON, six times as long at
// worst, such data fits into every known store.
const maxUserData = 64 << 10

// WithWait sets how a contender waits for its turn: [WatchPredecessor], which
// is the default, [WatchQueue] or [Poll].
func WithWait(w Wait) Option {
	return func(o *options) { o.wait = w }
}

// Wait selects how a contender waits for its turn. The zero Wait is
// WatchPredecessor.
type Wait struct {
	wait entry.WaitPolicy
}

// WatchPredecessor makes a contender watch only the node that it waits for. A
// release then wakes only those contenders that get the lock. This is the
// default, and best for any store that supports watches.
func WatchPredecessor() Wait { return Wait{entry.WaitPolicy{Kind: entry.WatchPredecessor}} }

// WatchQueue makes a contender watch the whole queue. Every change wakes all
// waiters (the herd effect), each of which lists the queue.
func WatchQueue() Wait { return Wait{entry.WaitPolicy{Kind: entry.WatchQueue}} }

// Poll makes a contender list the queue periodically instead of watching it. It
// is meant for stores and firewalls that cannot keep a watch. The interval is
// random between d/2 and 3d/2, so that contenders do not poll in step. If d is
// zero or less, it means 100 ms.
func Poll(d time.Duration) Wait {
	if d <= 0 {
		d = 100 * time.Millisecond
	}
	const most = math.MaxInt64 / 2 // avoids overflow of 3d/2
	return Wait{entry.WaitPolicy{Kind: entry.Poll, Interval: min(d, most)}}
}

// String returns "watch predecessor", "watch queue" or "poll".
func (w Wait) String() string {
	return [...]string{"watch predecessor", "watch queue", "poll"}[w.wait.Kind]
}
