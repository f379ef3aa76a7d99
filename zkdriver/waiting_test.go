package zkdriver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
)

// member is a session with one node in queue "q". Its timeout is so long that it
// sends no heartbeat during a test.
type member struct {
	*session
	t     testing.TB
	proxy *zktest.Proxy
	place driver.Place
	watch driver.Watch // of the node ahead
}

const longTimeout = 10 * time.Minute

// newLine returns n members in queue order, each of which waits for the one
// before it.
func newLine(t testing.TB, n int) (line []*member) {
	t.Helper()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	for i := range n {
		m := &member{t: t, proxy: zktest.NewProxy(t, server.Addr())}
		m.session = mustConnect(t, fmt.Sprintf("zk://%s%s?session_timeout=%v", m.proxy.Addr(), chroot, longTimeout))
		var err error
		m.place, err = create(within(t), m, "q", "h-W-", fmt.Append(nil, i))
		require.NoError(t, err)
		if i > 0 {
			m.watch, err = m.Watch(within(t), "q", m.place, line[i-1].place.Node)
			require.NoError(t, err)
		}
		line = append(line, m)
	}
	return line
}

// The release is the only request, even if the latest write of the next
// contender was sent six tenths of a session timeout ago, which is 6 s by
// default.
func TestHandOverAfterALongWaitIsOneRequest(t *testing.T) {
	const handOvers = 5
	line := newLine(t, handOvers+1)
	for _, m := range line {
		for range 3 {
			leasehook.Skew(m.conn.Lease(), longTimeout*2/10)
			require.NoError(t, m.conn.Sync("/")) // as a heartbeat
		}
	}
	requests := func() (sum int) {
		for _, m := range line {
			sum += m.proxy.Requests()
		}
		return sum
	}
	before := requests()
	for i := range handOvers {
		require.NoError(t, line[i].Delete(within(t), "q", line[i].place, driver.Released))
		require.Equal(t, driver.Released, causeOf(t, line[i+1].watch.C))
		require.NoError(t, line[i+1].Err())
	}
	require.Equal(t, handOvers, requests()-before)
}
