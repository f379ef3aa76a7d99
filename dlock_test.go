package dlock_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var errDSN = errors.New("this driver accepts no dsn")

type refuser struct{}

func (refuser) OpenConnector(dsn string) (driver.Connector, error) {
	return nil, errors.Join(errDSN, errors.New(dsn))
}

func init() {
	dlock.Register("refuser", refuser{})
	dlock.Register("a nil driver", nilDriver{})
}

func TestOpenOfAnUnknownDriverNamesTheRegisteredOnes(t *testing.T) {
	c, err := dlock.Open("zookeeper", "zk://localhost")
	require.Nil(t, c)
	require.ErrorContains(t, err, `dlock: unknown driver "zookeeper" (forgotten import?); registered: `)
	require.ErrorContains(t, err, `mem, refuser`)
}

func TestOpenPassesTheDSNToTheDriver(t *testing.T) {
	_, err := dlock.Open("refuser", "some dsn")
	require.ErrorIs(t, err, errDSN)
	assert.ErrorContains(t, err, `dlock: open "refuser": `)
	assert.ErrorContains(t, err, "some dsn")
}

type nilDriver struct{}

func (nilDriver) OpenConnector(string) (driver.Connector, error) { return nil, nil }

func TestOpenRefusesWhatNobodySeesInADSN(t *testing.T) {
	for text, says := range map[string]string{
		"a\n":                          "an unprintable character",
		"/x/\u200block.db":             "an unprintable character",
		"zk://u:a%0a@h":                "an unprintable character",
		" a":                           "a blank",
		"zk://h/l ?session_timeout=1s": "a blank",
		"zk://h/l%20":                  "a blank",
		"zk://u:se%0g@h/%20b?x=%20%41": "a blank",
	} {
		_, err := dlock.Open("refuser", text)
		require.ErrorContains(t, err, says, text)
		require.NotErrorIs(t, err, errDSN, text)
	}
	for _, text := range []string{"/x y/ü.db", "u:%0a@tcp(h)/d", "zk://h1:1, h2/l", "postgres://h/d?options=-c%20a%3D%20b"} {
		_, err := dlock.Open("refuser", text)
		require.ErrorIs(t, err, errDSN, text)
	}
}

func TestOpenRefusesANilConnector(t *testing.T) {
	_, err := dlock.Open("a nil driver", "")
	require.EqualError(t, err, `dlock: open "a nil driver": the driver has returned no connector`)
}

func TestRegisterPanicsOnANilDriverAndOnANameThatIsTaken(t *testing.T) {
	require.PanicsWithValue(t, "dlock: Register of a nil driver for none", func() { dlock.Register("none", nil) })
	require.PanicsWithValue(t, "dlock: Register called twice for driver mem", func() { dlock.Register("mem", refuser{}) })
	assert.Subset(t, dlock.Drivers(), []string{"mem", "refuser"})
}

func TestOpenDoesNoIO(t *testing.T) {
	c := dlock.NewClient(unreachable{t})
	require.NotNil(t, c.RWMutex("q"))
	require.NoError(t, c.Close())
}

type unreachable struct{ t *testing.T }

func (u unreachable) Connect(context.Context) (driver.Session, error) {
	u.t.Error("connected")
	return nil, driver.ErrUnavailable
}

func TestClientsOfOneStoreShareItsLocks(t *testing.T) {
	ctx := t.Context()
	a, err := dlock.Open("mem", t.Name())
	require.NoError(t, err)
	defer a.Close()
	b, err := dlock.Open("mem", t.Name())
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, a.Ping(ctx))

	lock, err := a.RWMutex("stock/42").Lock(ctx)
	require.NoError(t, err)
	_, err = b.RWMutex("stock/42").TryRLock(ctx)
	require.ErrorIs(t, err, dlock.ErrLocked)
	require.NoError(t, lock.Unlock())
	lock, err = b.RWMutex("stock/42").TryRLock(ctx)
	require.NoError(t, err)
	require.Equal(t, dlock.Shared, lock.Mode())
	require.NoError(t, lock.Unlock())
}

func TestAClosedClientReturnsErrClosed(t *testing.T) {
	c := dlock.NewClient(memdriver.New())
	require.NoError(t, c.Close())
	_, err := c.RWMutex("q").Lock(t.Context())
	require.ErrorIs(t, err, dlock.ErrClosed)
	require.ErrorIs(t, c.Ping(t.Context()), dlock.ErrClosed)
}

// Programs should link only the drivers that they import themselves.
func TestPackageDlockImportsNoDriver(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.NotContains(t, string(out), "go-zookeeper")
	assert.NotContains(t, string(out), "dlock/memdriver")
	assert.NotContains(t, string(out), "dlock/zkdriver")
	assert.NotContains(t, string(out), "testify")
}
