package dlock_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
)

func TestWithLockOfANilFunctionIsAnErrorWithoutARequest(t *testing.T) {
	c := dlock.NewClient(unreachable{t})
	defer c.Close()
	m := c.RWMutex("stock/42")
	for name, call := range map[string]func(context.Context, func(context.Context, *dlock.Lock) error) error{"WithLock": m.WithLock, "WithRLock": m.WithRLock} {
		assert.EqualError(t, call(t.Context(), nil), "dlock: stock/42: nil function", name)
	}
}

func TestEveryUseWithANilContextIsAnError(t *testing.T) {
	c := dlock.NewClient(unreachable{t})
	defer c.Close()
	var none context.Context
	for use, call := range uses(c.RWMutex("stock/42")) {
		assert.EqualError(t, call(none), "dlock: stock/42: nil context", use)
	}
	assert.EqualError(t, c.Ping(none), "dlock: ping: nil context")
}

// fills has a byte for each encoding of WithData in a node's record.
var fills = map[string]byte{"text": 'x', "control characters": 1, "binary": 0xff}

// maxData is the limit of WithData, in bytes.
const maxData = 64 << 10

func TestEveryUseWithDataThatIsTooLongIsAnError(t *testing.T) {
	for name, fill := range fills {
		long := dlock.WithData(bytes.Repeat([]byte{fill}, maxData+1))
		plain, ofClient := dlock.NewClient(unreachable{t}), dlock.NewClient(unreachable{t}, long)
		defer plain.Close()
		defer ofClient.Close()
		for _, m := range []*dlock.RWMutex{plain.RWMutex("stock/42", long), ofClient.RWMutex("stock/42")} {
			for use, call := range uses(m) {
				assert.EqualError(t, call(t.Context()), "dlock: stock/42: the data of a lock may have at most 65536 bytes, got 65537", "%s, %s", use, name)
			}
		}
	}
}

func TestTheLongestDataIsKept(t *testing.T) {
	c := dlock.NewClient(memdriver.New(), dlock.WithData(make([]byte, maxData+1)))
	defer c.Close()
	for name, fill := range fills {
		data := bytes.Repeat([]byte{fill}, maxData)
		m := c.RWMutex("stock/42", dlock.WithData(data)) // replaces the client's option
		lock, err := m.Lock(t.Context())
		require.NoError(t, err, name)
		queue, err := m.Queue(t.Context())
		require.NoError(t, err, name)
		require.Len(t, queue, 1)
		assert.Equal(t, string(data), queue[0].Record.Data+string(queue[0].Record.Bytes), name)
		require.NoError(t, lock.Unlock())
	}
}
