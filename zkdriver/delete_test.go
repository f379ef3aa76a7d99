package zkdriver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

func TestNodesThatOthersRemoveAreForgotten(t *testing.T) {
	b := newFixture(t, "")
	forgotten := func() bool {
		b.own.mu.Lock()
		defer b.own.mu.Unlock()
		return len(b.own.byToken) == 0 && len(b.own.queues) == 0
	}
	p := b.mustCreate("q", "h-W-", "watched")
	c := b.mustWatch(within(t), "q", p.Name)
	require.NoError(t, b.raw.Delete(b.chroot+"/q/"+p.Name, -1))
	ended(t, c)
	require.True(t, forgotten())
	p = b.mustCreate("q", "h-W-", "removed")
	require.NoError(t, b.Remove(within(t), "q", p))
	require.True(t, forgotten())

	for _, whole := range []bool{false, true} {
		p = b.mustCreate("q", "h-W-", fmt.Sprint("listed", whole))
		require.NoError(t, b.raw.Delete(b.chroot+"/q/"+p.Name, -1))
		if whole {
			require.NoError(t, b.raw.Delete(b.chroot+"/q", -1))
		}
		_, err := b.raw.Sync(b.chroot)
		require.NoError(t, err)
		_, err = b.List(within(t), "q")
		require.NoError(t, err)
		require.True(t, forgotten())
		require.ErrorIs(t, b.Delete(within(t), "q", p, driver.Changed), driver.ErrGone)
	}
}

func TestReplaceKeepsWhenTheNodeWasCreated(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "data")
	want, err := b.Read(within(t), "q", p.Name)
	require.NoError(t, err)
	for _, prefix := range []string{"h-R-", "h-X-"} {
		p, err = b.Replace(within(t), "q", p, prefix)
		require.NoError(t, err)
		got, err := b.Read(within(t), "q", p.Name)
		require.NoError(t, err)
		require.Equal(t, want.Created, got.Created)
	}
}

func TestRemoveRefusesNamesThatAreNoNodes(t *testing.T) {
	b := newFixture(t, "")
	for _, name := range []string{"", ".", "..", "a/b", "x\x00", strings.Repeat("\U0001F512", 2)} {
		require.ErrorIs(t, b.Remove(within(t), "q", driver.Place{Node: driver.Node{Name: name}}), driver.ErrBadName, "%q", name)
	}
}
