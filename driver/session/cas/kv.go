package cas

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/dlock-go/dlock/driver/session"
)

// KV is a key-value store, as one session sees it. All methods are safe for
// concurrent use. An error matches driver.ErrUnavailable if a retry may succeed.
//
// Keys consist of letters, digits and the characters '/', '-', '_' and '='. They
// have up to 1,540 bytes. The driver puts a prefix of its own before them.
//
// Reads are linearizable: they show each write that was answered or noticed
// before. Joining and leaving a queue, and ending a session, do not rely on it,
// because the condition of the write decides.
type KV interface {
	Get(ctx context.Context, key string) (Entry, error)
	// Scan returns all entries, which need not be from one instant.
	Scan(ctx context.Context) ([]Entry, error)
	// Write stores the Value of e, or removes the key if it is nil, provided
	// that the keys of e and of the guard, of which there is at most one, have
	// the revisions given. It checks and writes in one step, and returns the new
	// revision of e.Key, which may be zero after a removal.
	//
	// If a revision differs, the error matches [ErrConflict]. It also matches
	// driver.ErrUnavailable if the write may have been made nevertheless, because
	// the client library may send it twice, or a deposed leader may answer. After
	// any other error, the outcome is unknown, and the request may still arrive.
	//
	// A store whose conditional writes are for one key only is [Unguarded].
	Write(ctx context.Context, e Entry, guard ...Entry) (revision int64, err error)
	// Close frees the connections. It is called when the session has ended. The
	// session is ended once more if that has failed, so a later request connects
	// again.
	Close() error
}

// Entry is a key with its value.
type Entry struct {
	Key   string
	Value []byte // nil if the key does not exist; otherwise not empty
	// Revision is positive and less than 10^18 if the key exists; otherwise it is
	// zero, or that of the removal if the store still knows it. Each write of a
	// key has a greater revision than all earlier ones of that key, even if the
	// key was removed in between, by whomever. It is the fencing token of the
	// node that the write adds.
	//
	// The number of a change in the whole store serves, such as etcd's revision,
	// NATS's stream sequence, or Consul's index. A store that only counts per key
	// has to store max(last+1, microseconds of a clock) as the revision.
	Revision int64
	// Note is set by a write of a queue, and short. If its notices have it, they
	// need no Value. Get and Scan need not return it.
	Note string
}

// Watcher is a [KV] with notices.
type Watcher interface {
	KV
	// Watch calls changed after each write or removal of a key with the prefix,
	// with its revision, until ctx ends or notices cease to arrive. It calls begun
	// before the first one, and again after any that may have been lost. Value and
	// Note need not be there or be true, but either saves reads. A notice that is
	// lost without a trace costs a quarter of the session timeout.
	Watch(ctx context.Context, prefix string, begun func(), changed func(Entry)) error
}

// Generational is a [KV] that may lose data and can tell.
type Generational interface {
	KV
	// Generation names the generation of the data, which is another one after
	// each event that may have undone a write that was answered. It is asked
	// before the session begins, and after each heartbeat: a session of another
	// generation ends, with driver.ErrLostData. Until the leases of all sessions
	// of earlier generations are over, the result has a Wait. Then no session
	// begins.
	Generation(ctx context.Context) (Generation, error)
}

// Generation is what a [Generational] KV tells of its data.
type Generation struct {
	session.Begun
	// Base is added to revisions to make tokens. With it, tokens are greater
	// than those of earlier generations even if revisions are not.
	Base int64
}

// Unguarded is a [KV] that may have no way to write on the condition of a second
// key.
type Unguarded interface {
	KV
	// Unguarded reports whether Write takes no guard. Then a session that has
	// added a node reads its own key, and removes the node if that is gone.
	Unguarded() bool
}

// ErrConflict is matched by the error of a write whose condition does not hold.
var ErrConflict = errors.New("a key has another revision")

var (
	toKey   = strings.NewReplacer("%2F", "/", "%", "=", "+", "=20", ".", "=2E", "~", "=7E")
	fromKey = strings.NewReplacer("=", "%")
)

func queueKey(queue string) string { return "q/" + toKey.Replace(url.QueryEscape(queue)) }
func sessionKey(id string) string  { return "s/" + id }

// queueOf is the inverse of queueKey.
func queueOf(key string) (queue string, ok bool) {
	name, ok := strings.CutPrefix(key, "q/")
	queue, err := url.QueryUnescape(fromKey.Replace(name))
	return queue, ok && err == nil
}
