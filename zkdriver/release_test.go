package zkdriver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func causeOf(t testing.TB, c <-chan driver.Cause) driver.Cause {
	t.Helper()
	select {
	case cause := <-c:
		return cause
	case <-time.After(bound):
		t.Fatalf("the watch did not close within %v", bound)
	}
	return driver.Changed
}

func TestOnlyItsSessionWritesToAContender(t *testing.T) {
	for mode, login := range map[string]string{"open": "", "digest": "alice:geheim@", "creator": "alice:geheim@"} {
		t.Run(mode, func(t *testing.T) {
			b := newFixture(t, "")
			s := mustConnect(t, "zk://"+login+b.server.Addr()+b.chroot+"?acl="+mode)
			same := mustConnect(t, "zk://"+login+b.server.Addr()+b.chroot+"?acl="+mode)
			rival := b.server.Raw(t)
			if login != "" {
				require.NoError(t, rival.AddAuth("digest", []byte(strings.TrimSuffix(login, "@"))))
			}
			p, err := create(within(t), s, "q", "h-W-", []byte("x"))
			require.NoError(t, err)
			path := b.chroot + "/q/" + p.Name
			c, err := waitFor(within(t), same, "q", p.Name)
			require.NoError(t, err)

			_, err = rival.Set(path, []byte("y"), -1)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			_, err = rival.SetACL(path, zk.WorldACL(zk.PermAll), -1)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			_, err = same.conn.Multi(&zk.SetDataRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: path, Version: -1})
			require.ErrorIs(t, err, zk.ErrNoAuth)
			select {
			case cause := <-c:
				t.Fatalf("the watch of a node that no client could write to sent %v", cause)
			case <-time.After(20 * time.Millisecond): // give a wrong event time to arrive
			}
			_, _, err = rival.Get(path)
			require.NoError(t, err, "users of the queue may read")
			require.NoError(t, rival.Delete(path, -1), "users of the queue may delete the node, which is no release")
			require.Equal(t, driver.Changed, causeOf(t, c))
		})
	}
}

// Any client could write to an unguarded node and so make it look released.
func TestAWriteToAnUnguardedNodeReleasesNothing(t *testing.T) {
	b := newFixture(t, "")
	b.mustCreate("q", "h-W-", "x")
	for name, data := range map[string]string{"foreign-W-0000000007": "", "foreign-W-0000000008": "#dlock guarded"} {
		path := b.chroot + "/q/" + name
		_, err := b.raw.Create(path, []byte(data), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		c, err := waitFor(within(t), b, "q", name)
		require.NoError(t, err)
		_, err = b.raw.Set(path, []byte("y"), -1)
		require.NoError(t, err)
		require.Equal(t, driver.Changed, causeOf(t, c))
		c, err = waitFor(within(t), b, "q", name)
		require.NoError(t, err)
		_, err = b.raw.Multi(&zk.SetDataRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: path, Version: -1})
		require.NoError(t, err)
		require.Equal(t, driver.Changed, causeOf(t, c))
	}
}

// Without a watch, a removal by name could hit another session's node.
func TestHandOverByListingReadsOnlyNodesThatAreNotWatched(t *testing.T) {
	b := newFixture(t, "handover=list")
	for range 3 {
		p := b.mustCreate("q", "h-W-", "watched")
		reads := b.proxy.Frames(zktest.OpGetData)
		c, err := watchPlace(within(t), b, "q", p)
		require.NoError(t, err)
		require.NoError(t, b.Delete(within(t), "q", p, driver.Released))
		require.Equal(t, reads+1, b.proxy.Frames(zktest.OpGetData), "the watch is the only read")
		ended(t, c)
		p = b.mustCreate("q", "h-W-", "not watched")
		require.NoError(t, b.Delete(within(t), "q", p, driver.Released))
		require.Equal(t, reads+2, b.proxy.Frames(zktest.OpGetData))
	}
}

// The server reports a write if the node was replaced during a reconnect.
func TestANodeOfTheSameNameMadeDuringAReconnectIsNoRelease(t *testing.T) {
	b := newFixture(t, "session_timeout=20s")
	other := b.another("")
	p, err := create(within(t), other, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	c := b.mustWatch(within(t), "q", p.Name)
	b.proxy.Refuse()
	b.proxy.DropConnections()
	removeAll(t, b.raw, b.chroot+"/q")
	again, err := create(within(t), other, "q", "h-W-", []byte("y"))
	require.NoError(t, err)
	require.Equal(t, p.Name, again.Name)
	b.proxy.Heal()
	require.Equal(t, driver.Changed, causeOf(t, c))
}

// After a reconnect, a waiter may see a release before its own node's removal.
func TestNoReleaseIsTrustedBesideAWatchOfAnEarlierConnection(t *testing.T) {
	ws := new(watches)
	armed := func(own, ahead string) <-chan driver.Cause {
		l := &subscriber{c: make(chan driver.Cause, 1)}
		for _, path := range []string{own, ahead} {
			if w, first := ws.subscribe(path, l, path == own); first {
				ws.answered(path, w, watchedNode{trusted: true}, nil)
			}
		}
		return l.c
	}
	own := armed("/q/own", "/q/before")
	ws.wrote("/q/before")
	require.Equal(t, driver.Released, <-own)

	ws.disconnected()
	before := armed("/q/other", "/q/before")
	elsewhere := armed("/p/own", "/p/before")
	ws.wrote("/q/before")
	require.Equal(t, driver.Changed, <-before, "the watch of /q/own was set on an earlier connection")
	ws.wrote("/p/before")
	require.Equal(t, driver.Released, <-elsewhere, "all watches in the queue p were set on this connection")

	ws.fire("/q/own", driver.Changed)
	require.Equal(t, driver.Changed, <-own)
	before = armed("/q/third", "/q/before")
	ws.wrote("/q/before")
	require.Equal(t, driver.Released, <-before)
	require.Empty(t, ws.stale)
}

func TestAWriteReportedBeforeTheAnswerIsJudgedByTheAnswer(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		ws := new(watches)
		l := &subscriber{c: make(chan driver.Cause, 1)}
		own, _ := ws.subscribe("/q/own", l, true)
		ws.answered("/q/own", own, watchedNode{}, nil)
		w, _ := ws.subscribe("/q/n", l, false)
		ws.wrote("/q/n")
		select {
		case <-l.c:
			t.Fatal("it is not known yet what was written to")
		default:
		}
		ws.answered("/q/n", w, watchedNode{trusted: guarded}, nil)
		require.Equal(t, guarded, <-l.c == driver.Released)
	}
}

// With handover=list, a session neither announces its release nor believes
// another's.
func TestHandOverByListing(t *testing.T) {
	b := newFixture(t, "")
	lists := b.another("handover=list")
	p, err := create(within(t), lists, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	acl, _, err := b.raw.GetACL(b.chroot + "/q/" + p.Name)
	require.NoError(t, err)
	require.Equal(t, zk.WorldACL(zk.PermAll), acl)
	data, _, err := b.raw.Get(b.chroot + "/q/" + p.Name)
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
	for _, by := range []struct{ holder, waiter *session }{{lists, b.session}, {b.session, lists}} {
		p, err := create(within(t), by.holder, "q", "h-W-", []byte("held"))
		require.NoError(t, err)
		w, err := waitFor(within(t), by.waiter, "q", p.Name)
		require.NoError(t, err)
		require.NoError(t, by.holder.Delete(within(t), "q", p, driver.Released))
		require.Equal(t, driver.Changed, causeOf(t, w))
	}
}

// A client that can fake a release gains nothing if it may delete nodes anyway.
func TestAReleaseIsReportedWhereAForgeryGainsNothing(t *testing.T) {
	alice := zk.DigestACL(zk.PermAll, "alice", "geheim")[0]
	bob := zk.DigestACL(zk.PermRead|zk.PermCreate, "bob", "geheim")[0]
	world := func(perms int32) zk.ACL { return zk.WorldACL(perms)[0] }
	for name, queue := range map[string]struct {
		acl  []zk.ACL
		want driver.Cause
	}{
		"every client may do everything":  {[]zk.ACL{world(zk.PermAll)}, driver.Released},
		"one user":                        {[]zk.ACL{alice}, driver.Released},
		"others may read":                 {[]zk.ACL{world(zk.PermRead), alice}, driver.Released},
		"others may add":                  {[]zk.ACL{world(zk.PermRead | zk.PermCreate), alice}, driver.Changed},
		"another user may add":            {[]zk.ACL{bob, alice}, driver.Changed},
		"a user may add, all may delete":  {[]zk.ACL{bob, alice, world(zk.PermRead | zk.PermDelete)}, driver.Released},
		"others may add and delete":       {[]zk.ACL{world(zk.PermRead | zk.PermCreate | zk.PermDelete), alice}, driver.Released},
		"others may delete what one adds": {[]zk.ACL{world(zk.PermDelete), alice}, driver.Released},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "")
			operator := b.server.Raw(t)
			require.NoError(t, operator.AddAuth("digest", []byte("alice:geheim")))
			_, err := operator.Create(b.chroot+"/q", nil, 0, queue.acl)
			require.NoError(t, err)
			dsn := "zk://alice:geheim@" + b.server.Addr() + b.chroot
			holder, waiter := mustConnect(t, dsn), mustConnect(t, dsn)
			for _, want := range []driver.Cause{queue.want, queue.want, driver.Changed, driver.Changed} {
				p, err := create(within(t), holder, "q", "h-W-", fmt.Append(nil, want))
				require.NoError(t, err)
				if want != queue.want { // a changed ACL is not trusted
					_, err := operator.SetACL(b.chroot+"/q", aliceOnly, -1)
					require.NoError(t, err)
				}
				c, err := waitFor(within(t), waiter, "q", p.Name)
				require.NoError(t, err)
				require.NoError(t, holder.Delete(within(t), "q", p, driver.Released))
				require.Equal(t, want, causeOf(t, c))
			}
		})
	}
}

func TestTheACLOfAQueueIsReadOnce(t *testing.T) {
	b := newFixture(t, "")
	other := b.another("")
	read := b.proxy.Frames(zktest.OpGetACL)
	for i := range 10 {
		p, err := create(within(t), other, "q", "h-W-", []byte("x"))
		require.NoError(t, err)
		_, err = b.List(within(t), "q")
		require.NoError(t, err)
		c, err := waitFor(within(t), b, "q", p.Name)
		require.NoError(t, err)
		require.NoError(t, other.Delete(within(t), "q", p, driver.Released))
		require.Equal(t, driver.Released, causeOf(t, c))
		require.Equal(t, 1, b.proxy.Frames(zktest.OpGetACL)-read, i)
	}
	b.remake("q")
	p, err := create(within(t), other, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	_, err = b.List(within(t), "q")
	require.NoError(t, err)
	b.mustWatch(within(t), "q", p.Name)
	require.Equal(t, 2, b.proxy.Frames(zktest.OpGetACL)-read, "the ACL is read again, because the queue was made again")
}

// Another session's node may claim any token in its data.
func TestAForgedPlaceIsGone(t *testing.T) {
	for _, handover := range []string{"release", "list"} {
		forged := func(t *testing.T, first func(*fixture, driver.Place)) (*fixture, driver.Place) {
			b := newFixture(t, "handover="+handover)
			p := b.mustCreate("q", "h-W-", "x")
			first(b, p)
			path := b.chroot + "/q/" + p.Name
			_, err := b.raw.Multi(&zk.DeleteRequest{Path: path, Version: -1},
				&zk.CreateRequest{Path: path, Data: []byte(trailer{token: p.Token, created: 1}.text()), Acl: zk.WorldACL(zk.PermRead)})
			require.NoError(t, err)
			return b, p
		}
		t.Run("delete with handover="+handover, func(t *testing.T) {
			b, p := forged(t, func(*fixture, driver.Place) {})
			for range 2 {
				require.ErrorIs(t, b.Delete(within(t), "q", p, driver.Released), driver.ErrGone)
				require.ErrorIs(t, b.Delete(within(t), "q", p, driver.Changed), driver.ErrGone)
			}
			require.Equal(t, []string{p.Name}, b.nodes("q"))
		})
		t.Run("watch with handover="+handover, func(t *testing.T) {
			var armed <-chan driver.Cause
			b, p := forged(t, func(b *fixture, p driver.Place) {
				var err error
				armed, err = watchPlace(within(t), b, "q", p)
				require.NoError(t, err)
			})
			ended(t, armed)
			c, err := watchPlace(within(t), b, "q", p)
			require.NoError(t, err)
			ended(t, c)
			info, err := b.Read(within(t), "q", p.Name)
			require.NoError(t, err)
			require.True(t, info.Foreign)
			_, err = b.Replace(within(t), "q", p, "h-R-")
			require.ErrorIs(t, err, driver.ErrGone)
		})
	}
}
