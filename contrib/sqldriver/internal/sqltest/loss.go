package sqltest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Open returns a client that is closed when the test ends.
func Open(t testing.TB, driver, dsn string) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Loss is a database that loses data while a lock is held.
type Loss struct {
	*testing.T
	Driver string
	Client *dlock.Client // the holder's client
	Holder *dlock.Lock
	Cut    func() // disconnects the holder from the server
}

// NewLoss begins a session, so that replicas made later have a session, too. A
// replica without any would look like a new store once it is promoted.
func NewLoss(t *testing.T, driver, server string, dsn func(addr string) string) *Loss {
	t.Helper()
	proxy := testenv.NewProxy(t, server, nil)
	l := &Loss{T: t, Driver: driver, Client: Open(t, driver, dsn(proxy.Addr())), Cut: proxy.Cut}
	l.Hold()
	require.NoError(t, l.Holder.Unlock())
	return l
}

func (l *Loss) Hold() {
	l.Helper()
	l.Holder = Lock(l, l.Client.RWMutex("q"))
}

// GrantsLater checks that a contender with a new client gets the lock only
// after the holder has learned that its own is lost. The parameter empty_is_new
// could skip the grace, so GrantsLater removes it from dsn.
func (l *Loss) GrantsLater(dsn string) *dlock.Lock {
	l.Helper()
	if l.Holder.Err() != nil {
		l.Log("the machine is slow: the lease was over before the next contender came, so its grace is not tested")
	}
	next := Lock(l, Open(l, l.Driver, strings.Replace(dsn, "&empty_is_new=true", "", 1)).RWMutex("q"))
	require.Error(l, l.Holder.Err(), "there are two holders")
	require.Greater(l, next.Token(), l.Holder.Token())
	return next
}
