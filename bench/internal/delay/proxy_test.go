package delay

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sleepUntil sleeps in virtual time, for calls of copyDelayed.
func sleepUntil(at time.Time) error {
	time.Sleep(time.Until(at))
	return nil
}

type arrival struct {
	text string
	at   time.Duration // time of the Write, since the start
}

type arrivals struct {
	start time.Time
	list  []arrival
}

func (a *arrivals) Write(p []byte) (int, error) {
	a.list = append(a.list, arrival{string(p), time.Since(a.start)})
	return len(p), nil
}

func TestEachChunkIsDelayedOnItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Millisecond
		src, sender := io.Pipe()
		dst := &arrivals{start: time.Now()}
		copied := make(chan error)
		go func() { copied <- copyDelayed(dst, src, delay, sleepUntil) }()
		sent := []arrival{
			{"a", 0}, {"b", 0}, {"c", 300 * time.Microsecond}, {"d", 999 * time.Microsecond}, {"e", 5 * time.Millisecond},
		}
		for _, s := range sent {
			time.Sleep(time.Until(dst.start.Add(s.at)))
			_, err := io.WriteString(sender, s.text)
			require.NoError(t, err)
		}
		require.NoError(t, sender.Close())
		require.NoError(t, <-copied)
		require.Equal(t, 6*time.Millisecond, time.Since(dst.start), "the end is delayed as well")
		want := slices.Clone(sent)
		for i := range want {
			want[i].at += delay
		}
		require.Equal(t, want, dst.list)
	})
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestAfterAnErrorOfTheWriterTheSourceIsClosed(t *testing.T) {
	src, sender := io.Pipe()
	copied := make(chan error)
	go func() { copied <- copyDelayed(brokenWriter{}, src, 0, sleepUntil) }()
	_, err := io.WriteString(sender, "a")
	require.NoError(t, err)
	require.ErrorIs(t, <-copied, errBroken)
	_, err = io.WriteString(sender, "b")
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestAnErrorOfTheSourceIsReturned(t *testing.T) {
	src, sender := io.Pipe()
	sender.CloseWithError(errBroken)
	require.ErrorIs(t, copyDelayed(io.Discard, src, 0, sleepUntil), errBroken)
}

func start(t *testing.T, delay time.Duration) *Proxy {
	t.Helper()
	echo, err := startEcho()
	require.NoError(t, err)
	t.Cleanup(func() { echo.Close() })
	p, err := Start(echo.Addr().String(), delay)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestProxyForwardsAllBytesAndTheEnd(t *testing.T) {
	p := start(t, time.Millisecond)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	sent := strings.Repeat("0123456789", 100_000)
	go func() {
		_, _ = io.WriteString(conn, sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	received, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.True(t, sent == string(received), "the same bytes in the same order")
}

func TestClosingTheProxyClosesItsConnections(t *testing.T) {
	p := start(t, time.Millisecond)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "12")
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1)) // shows that the proxy has accepted the connection
	require.NoError(t, err)
	p.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.Copy(io.Discard, conn) // the rest of the echo may have arrived before Close
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is open")
	_, err = net.Dial("tcp", p.Addr())
	require.Error(t, err)
}

func TestConnectionToAServerThatIsDownEnds(t *testing.T) {
	p := start(t, 0)
	down := p.Addr()
	p.Close()
	p, err := Start(down, 0)
	require.NoError(t, err)
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestTimerDoesNotReturnEarly(t *testing.T) {
	timer, err := newTimer()
	require.NoError(t, err)
	defer timer.close()
	for _, rest := range []time.Duration{-time.Second, 0, 300 * time.Microsecond, 2500 * time.Microsecond} {
		at := time.Now().Add(rest)
		require.NoError(t, timer.sleepUntil(at))
		require.False(t, time.Now().Before(at), "%v", rest)
	}
}

// The test checks no upper bound, because that would depend on the load of the
// machine. Instead, bench checks the round trip in each run.
func TestRoundTripTakesTheDelayTwice(t *testing.T) {
	const delay = 3 * time.Millisecond
	trip, err := RoundTrip(delay)
	require.NoError(t, err)
	require.GreaterOrEqual(t, trip, 2*delay)
}
