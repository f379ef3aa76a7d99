package recipes

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// Option is a setting of a client, for all its locks, or of one lock.
type Option func(*options)

type options struct {
	timeout   time.Duration
	backOff   func() engine.BackOff
	host      string // what the names of nodes begin with
	logger    *slog.Logger
	trace     *Trace
	wait      Wait
	retention *Retention // nil: none
	record    []byte     // the part of the record that is the same for all nodes
	recordErr error      // why the data of WithData is refused; nil if it is not
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
		backOff: engineBackOff(defaultBackOff),
		logger:  slog.New(slog.DiscardHandler),
		trace:   new(Trace),
		record:  recordTail(nil),
		host:    systemHostname(),
	}
}

// WithTimeout limits how long Lock and RLock wait if the context has no earlier
// deadline. It is no lease time: a lock that was granted is held until Unlock or
// until it is lost. TryLock and TryRLock do not wait for other contenders, but the
// limit holds for their requests to the store. Zero or less means no limit, which
// is the default.
func WithTimeout(d time.Duration) Option {
	return func(o *options) { o.timeout = d }
}

// WithBackOff sets how requests are retried after errors of the store that may
// pass; see [BackOff].
//
// newBackOff is called once for each call of Lock or RLock that meets such an
// error. It is also called for work in the background, which connects again or
// removes a node. That work goes on when the back-off gives up. newBackOff may
// be called by many goroutines at once.
//
// Nil means the default: an exponential back-off with jitter, from 20 ms to 2
// s, that gives up when the store has failed for a minute.
func WithBackOff(newBackOff func() BackOff) Option {
	if newBackOff == nil {
		newBackOff = defaultBackOff
	}
	return func(o *options) { o.backOff = engineBackOff(newBackOff) }
}

// BackOff says how long to wait after an error of the store, before the next
// try. The types of github.com/cenkalti/backoff, of every major version so far,
// implement it.
type BackOff interface {
	// NextBackOff returns how long to wait; a negative duration means to give
	// up.
	NextBackOff() time.Duration
	// Reset is called before the first wait after a success.
	Reset()
}

// giveUpAfter is how long the store may fail, without a success in between,
// before the default back-off gives up. Without this limit a caller would wait
// for ever if the address of the store is wrong.
const giveUpAfter = time.Minute

func defaultBackOff() BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(giveUpAfter),
	)
}

// engineBackOff returns newBackOff in the form that the engine needs. If
// newBackOff returns nil, the default back-off takes its place.
func engineBackOff(newBackOff func() BackOff) func() engine.BackOff {
	return func() engine.BackOff {
		if b := newBackOff(); b != nil {
			return b
		}
		return defaultBackOff()
	}
}

// WithHostname sets what the names of the lock's nodes begin with, instead of
// the name that os.Hostname returns. Bytes outside [A-Za-z0-9._-] are
// percent-encoded. The encoded name is cut at 200 bytes, and an empty name
// becomes "unknown". The name is for people who look at a queue. Two hosts may
// have the same name.
func WithHostname(name string) Option {
	encoded := encodeHostname(name)
	return func(o *options) { o.host = encoded }
}

// WithLogger sets where to log what an operator should know: sessions that
// begin and end, retries, losses, and nodes that could not be removed at once.
// By default, or if l is nil, nothing is logged.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return func(o *options) { o.logger = l }
}

// WithTrace adds hooks that see what a lock does; see [Trace]. If several
// traces have a hook, all of them are called in the order of the options, those
// of the client before those of the lock. A nil trace adds nothing.
func WithTrace(t *Trace) Option {
	if t == nil {
		t = new(Trace)
	}
	return func(o *options) { o.trace = o.trace.and(t) }
}

// WithData adds data to the record that the lock's nodes carry, for people who
// look at a queue: see [RWMutex.Queue]. The data is at most 65,536 bytes long.
// If it is longer, every use of the lock returns an error, without a request to
// the store.
func WithData(data []byte) Option {
	if len(data) > maxUserData {
		err := fmt.Errorf("the data of a lock may have at most %d bytes, got %d", maxUserData, len(data))
		return func(o *options) { o.recordErr = err }
	}
	tail := recordTail(data)
	return func(o *options) { o.record, o.recordErr = tail, nil }
}

// maxUserData is the greatest length that WithData accepts. In the record, one
// byte becomes at most six bytes, as a control character does in JSON. So a
// record with the longest data fits into a node of every store that is known to
// keep locks.
const maxUserData = 64 << 10

// WithWait sets how a contender waits for other contenders: [WatchPredecessor],
// which is the default, [WatchQueue] or [Poll].
func WithWait(w Wait) Option {
	return func(o *options) { o.wait = w }
}

// Wait is a way of waiting for other contenders, for [WithWait]:
// [WatchPredecessor], [WatchQueue] or [Poll]. The zero Wait is
// WatchPredecessor.
type Wait struct {
	wait engine.Wait
}

// WatchPredecessor returns the Wait by which a contender watches its
// predecessor. A release then wakes only the contenders to which it grants the
// lock. This is the default, and the best Wait on a store that can watch.
func WatchPredecessor() Wait { return Wait{engine.Wait{Kind: engine.WatchPredecessor}} }

// WatchQueue returns the Wait by which a contender watches the whole queue.
// Each change then wakes all waiters (the herd effect), and each of them lists
// the queue.
func WatchQueue() Wait { return Wait{engine.Wait{Kind: engine.WatchQueue}} }

// Poll returns the Wait by which a contender watches nothing and lists the
// queue again and again, after a pause of d on average. Each pause is chosen at
// random between d/2 and 3d/2, so that contenders do not poll at the same time.
// Poll is for stores and firewalls that cannot keep a watch. If d is zero or
// less, it means 100 ms.
func Poll(d time.Duration) Wait {
	if d <= 0 {
		d = 100 * time.Millisecond
	}
	const most = math.MaxInt64 / 2 // so that a pause of 3d/2 does not overflow
	return Wait{engine.Wait{Kind: engine.Poll, Interval: min(d, most)}}
}

// String returns "watch predecessor", "watch queue" or "poll".
func (w Wait) String() string {
	return [...]string{"watch predecessor", "watch queue", "poll"}[w.wait.Kind]
}
