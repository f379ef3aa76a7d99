package faultnet_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

type server struct {
	t *testing.T
	net.Listener
}

func newServer(t *testing.T) server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return server{t, l}
}

func (s server) dial(n *faultnet.Network) (session, store net.Conn) {
	s.t.Helper()
	session, err := n.Dial(s.t.Context(), "tcp", s.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { session.Close() })
	store, err = s.Accept()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { store.Close() })
	return session, store
}

func passes(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err := from.Write([]byte(text))
	require.NoError(t, err)
	b := make([]byte, 100)
	size, err := to.Read(b)
	require.NoError(t, err)
	require.Equal(t, text, string(b[:size]))
}

func TestBytesPassWithoutAFault(t *testing.T) {
	session, store := newServer(t).dial(new(faultnet.Network))
	passes(t, session, store, "request")
	passes(t, store, session, "reply")
}

func TestACutLosesBytesInBothDirections(t *testing.T) {
	s := newServer(t)
	var n, other faultnet.Network
	session, store := s.dial(&n)
	spared, sparedStore := s.dial(&other)
	heal := n.Cut()
	_, err := session.Write([]byte("request"))
	assert.NoError(t, err, "the session does not see the cut")
	type result struct {
		size int
		err  error
	}
	read := make(chan result)
	go func() {
		size, err := session.Read(make([]byte, 100))
		read <- result{size, err}
	}()
	_, err = store.Write([]byte("reply"))
	assert.NoError(t, err)
	passes(t, spared, sparedStore, "request of another session")

	heal()
	heal()
	got := <-read
	assert.Error(t, got.err, "the connection has lost bytes, so it breaks")
	assert.Zero(t, got.size, "a byte of the cut has arrived")
	size, err := store.Read(make([]byte, 100))
	assert.Error(t, err)
	assert.Zero(t, size, "a byte of the cut has arrived")
	session, store = s.dial(&n)
	passes(t, session, store, "request after the cut")
}

func TestDialWaitsForTheEndOfACut(t *testing.T) {
	s := newServer(t)
	var n faultnet.Network
	heal := n.Cut()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := n.Dial(ctx, "tcp", s.Addr().String())
	require.ErrorIs(t, err, context.Canceled)
	dialed := make(chan error)
	go func() {
		c, err := n.Dial(t.Context(), "tcp", s.Addr().String())
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	heal()
	require.NoError(t, <-dialed)
}

func TestResetBreaksConnectionsOnce(t *testing.T) {
	s := newServer(t)
	var n faultnet.Network
	session, _ := s.dial(&n)
	n.Reset()
	_, err := session.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = session.Write([]byte("request"))
	require.Error(t, err)
	session, store := s.dial(&n)
	passes(t, session, store, "request")
}

func TestOnlyTheConnectionOfTheNoticesFallsSilent(t *testing.T) {
	s := newServer(t)
	n := faultnet.Network{Notices: "LISTEN"}
	listening, listeningStore := s.dial(&n)
	asking, askingStore := s.dial(&n)
	passes(t, listening, listeningStore, "LISTEN q")
	passes(t, listeningStore, listening, "notice")
	n.SilenceNotices()
	_, err := listeningStore.Write([]byte("notice that is lost"))
	require.NoError(t, err)
	require.NoError(t, listening.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	size, err := listening.Read(make([]byte, 100))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Zero(t, size)
	passes(t, asking, askingStore, "request")
	passes(t, askingStore, asking, "reply")

	again, againStore := s.dial(&n)
	passes(t, again, againStore, "LISTEN q")
	passes(t, againStore, again, "notice on a later connection")
}

func TestRepliesAreDelayedAndRequestsAreNot(t *testing.T) {
	var n faultnet.Network
	session, store := newServer(t).dial(&n)
	const delay = 50 * time.Millisecond
	n.DelayReplies(delay)
	passes(t, session, store, "request")
	began := time.Now()
	passes(t, store, session, "reply")
	require.GreaterOrEqual(t, time.Since(began), delay)
}
