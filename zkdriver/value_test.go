package zkdriver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// In each round, the lock takes two requests, Value one, and SetValue two.
func TestOnceTakesFiveRequests(t *testing.T) {
	b := newFixture(t, "")
	round := func(i int) {
		p := b.mustCreate("q", "h-W-", fmt.Sprint(i))
		_, _, err := b.Value(within(t), "q")
		require.NoError(t, err)
		require.NoError(t, b.SetValue(within(t), "q", p, []byte("value")))
		require.NoError(t, b.Delete(within(t), "q", p, driver.Released))
	}
	round(0) // creates the queue and the value
	before := b.requests()
	for i := range 10 {
		round(i)
	}
	require.Equal(t, 50, b.requests()-before)
}

func TestWhereAValueIs(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("stock/42", "h-W-", "0")
	require.NoError(t, b.SetValue(within(t), "stock/42", p, []byte("value")))
	data, _, err := b.raw.Get(b.chroot + "/kept\u00a0values/stock/42/kept\u00a0value")
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("value\n#dlock token=%d created=0", p.Token), string(data))
}

func TestSetValueNoticesAWriteOfAnotherSession(t *testing.T) {
	b := newFixture(t, "")
	other := b.another("")
	first := b.mustCreate("q", "h-W-", "0")
	require.NoError(t, b.SetValue(within(t), "q", first, []byte("first")))
	later, err := create(within(t), other, "q", "h-W-", []byte("1"))
	require.NoError(t, err)
	require.NoError(t, other.SetValue(within(t), "q", later, []byte("later")))
	require.ErrorIs(t, b.SetValue(within(t), "q", first, []byte("late")), driver.ErrStale)
	value, token, err := other.Value(within(t), "q")
	require.NoError(t, err)
	require.Equal(t, "later", string(value))
	require.Equal(t, later.Token, token)
	require.NoError(t, b.raw.Delete(b.chroot+"/kept\u00a0values/q/kept\u00a0value", -1))
	require.NoError(t, other.SetValue(within(t), "q", later, []byte("after an operator removed it")))
}
