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
// before. Joining and leaving a queue, and ending a session, do not rely on
// that, because the condition of the write decides.
type KV interface {
	Get(ctx context.Context, key string) (Entry, error)
	// Scan returns all entries, which need not be from one instant.
	Scan(ctx context.Context) ([]Entry, error)
	// Write stores the Value of e, or removes the key if the Value is nil. It
	// does so only if the key still has e.Revision and the key of the guard, if
	// there is one, has the guard's Revision. It checks and writes in one step,
	// and returns the new revision of e.Key, which may be zero after a removal.
	//
	// If a revision differs, the error matches [ErrConflict]. It also matches
	// driver.ErrUnavailable if the write may have been made nevertheless, because
	// the client library may send it twice, or a deposed leader may answer. After
	// any other error, the outcome is unknown, and the request may still arrive.
	//
	// A store whose conditional writes are for one key only is [Unguarded].
	Write(ctx context.Context, e Entry, guard ...Entry) (revision int64, err error)
	// Close frees the connections. It is called after the request that ends the
	// session. If that request has failed, it is sent once more after Close,
	// and has to connect again.
	Close() error
}

// Entry is a key with its value.
type Entry struct {
	Key   string
	Value []byte // nil if the key does not exist; otherwise not empty
	// Revision is positive and less than 10^18 if the key exists. Otherwise it
	// is zero, or the revision of the removal if the store still knows it. Each
	// write of a key must have a greater revision than all earlier writes of
	// that key, even if anybody has removed the key in between, because the
	// revision is the fencing token of the node that the write adds.
	//
	// A number counted for all keys will do, such as etcd's revision, NATS's
	// stream sequence, or Consul's index. A store that only counts per key has
	// to store max(last+1, microseconds of a clock) as the revision.
	Revision int64
	// Note is a short text that a write of a queue sets. Notices that have it
	// need no Value. Get and Scan need not return it.
	Note string
}

// Watcher is a [KV] with notices.
type Watcher interface {
	KV
	// Watch calls the function changed after each write or removal of a key
	// with the prefix, until ctx ends or notices cease to arrive. The entry has
	// the new revision. Its Value and Note may be missing or wrong, but either
	// one saves reads. Watch calls the function begun before the first notice,
	// and again when notices may have been lost. A notice that is lost without
	// a trace delays a waiter by up to a quarter of the session timeout.
	Watch(ctx context.Context, prefix string, begun func(), changed func(Entry)) error
}

// Generational is a [KV] that may lose data and can tell.
type Generational interface {
	KV
	// Generation names the generation of the data. A new one begins with each
	// event that may have undone a write that was answered. Generation is
	// called before the session begins, and after each heartbeat: a session of
	// another generation ends, with driver.ErrLostData. Until the leases of all
	// sessions of earlier generations are over, the result has a Wait, and no
	// session begins.
	Generation(ctx context.Context) (Generation, error)
}

// Generation is what a [Generational] KV tells of its data.
type Generation struct {
	session.Begun
	// Base is added to revisions to make tokens. With it, tokens are greater
	// than those of earlier generations even if revisions are not.
	Base int64
}

// Unguarded is a [KV] that may be unable to check the revision of a second key.
type Unguarded interface {
	KV
	// Unguarded reports whether Write takes no guard. Then a session that has
	// added a node reads its own key, and removes the node if the key is gone.
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
