package zkdriver

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

// aclFixture has nodes of alice, which tests try to alter as other users.
type aclFixture struct {
	t          testing.TB
	server     *zktest.Server
	root, mode string
	queue      string
	alice      *session
	place      driver.Place
	owner      *zk.Conn // has alice's login
}

func newACLFixture(t testing.TB, mode string) *aclFixture {
	t.Helper()
	server := zktest.Shared(t)
	h := &aclFixture{t: t, server: server, root: server.Chroot(t), mode: mode, queue: "of/alice/q", owner: server.Raw(t)}
	require.NoError(t, h.owner.AddAuth("digest", []byte("alice:geheim")))
	h.alice = mustConnect(t, h.dsn("alice:geheim@")+"?session_timeout=1m&acl="+mode)
	var err error
	h.place, err = create(within(t), h.alice, h.queue, "web1-W-", []byte("alice's"))
	require.NoError(t, err)
	return h
}

func (h *aclFixture) dsn(login string) string { return "zk://" + login + h.server.Addr() + h.root }
func (h *aclFixture) queuePath() string       { return h.root + "/" + h.queue }
func (h *aclFixture) nodePath() string        { return h.queuePath() + "/" + h.place.Name }
func (h *aclFixture) ancestors() []string     { return []string{h.root + "/of", h.root + "/of/alice"} }

func (h *aclFixture) aclOf(path string) []zk.ACL {
	h.t.Helper()
	acl, stat, err := h.owner.GetACL(path)
	require.NoError(h.t, err, path)
	require.Zero(h.t, stat.Aversion, "the ACL of %s was changed after it was made", path)
	return acl
}

func (h *aclFixture) contenderACL(path string, login string, what string) {
	h.t.Helper()
	acl := h.aclOf(path)
	require.Len(h.t, acl, 2, what)
	for i, want := range []struct {
		perms  int32
		scheme string
		id     string
	}{{zk.PermRead, "world", "anyone"}, {zk.PermAll, "digest", secretUser + ":"}} {
		if i == 0 && login != "" {
			want.scheme, want.id = "digest", login+":"
		}
		require.Equal(h.t, want.perms, acl[i].Perms, what)
		require.Equal(h.t, want.scheme, acl[i].Scheme, what)
		require.True(h.t, strings.HasPrefix(acl[i].ID, want.id), "%s: %s", what, acl[i].ID)
	}
}

func (h *aclFixture) untouched() {
	h.t.Helper()
	require.NoError(h.t, h.alice.Err())
	names, _, err := h.owner.Children(h.queuePath())
	require.NoError(h.t, err)
	require.Equal(h.t, []string{h.place.Name}, names)
	data, stat, err := h.owner.Get(h.nodePath())
	require.NoError(h.t, err)
	require.Equal(h.t, "alice's"+trailer{guarded: true}.text(), string(data))
	require.Zero(h.t, stat.Version)
}

var (
	everyClient = zk.WorldACL(zk.PermAll)
	aliceOnly   = zk.DigestACL(zk.PermAll, "alice", "geheim")
	mayAdd      = append(zk.WorldACL(zk.PermRead|zk.PermCreate), aliceOnly...)
)

func TestEveryNodeIsCreatedWithTheACLOfItsMode(t *testing.T) {
	for mode, want := range map[string]struct{ ancestor, queue []zk.ACL }{
		"open":    {everyClient, everyClient},
		"creator": {mayAdd, aliceOnly},
		"digest":  {mayAdd, aliceOnly},
	} {
		t.Run(mode, func(t *testing.T) {
			h := newACLFixture(t, mode)
			user := map[string]string{"creator": "alice", "digest": "alice"}[mode]
			for _, path := range h.ancestors() {
				assert.ElementsMatch(t, want.ancestor, h.aclOf(path), path)
			}
			assert.Equal(t, want.queue, h.aclOf(h.queuePath()), "the queue")
			h.contenderACL(h.nodePath(), user, "the contender")

			p, err := h.alice.Replace(within(t), h.queue, h.place, "web1-R-")
			require.NoError(t, err)
			h.contenderACL(h.queuePath()+"/"+p.Name, user, "the contender after a downgrade")

			_, err = watchName(within(t), h.alice, "of/alice/watched", "")
			require.NoError(t, err)
			assert.Equal(t, want.queue, h.aclOf(h.root+"/of/alice/watched"), "a queue that a watch has made")

			// In a queue whose node has data, Create sends a different request:
			// see createMode.
			_, err = h.owner.Create(h.root+"/of/alice/plain", []byte("x"), 0, want.queue)
			require.NoError(t, err)
			p, err = create(within(t), h.alice, "of/alice/plain", "web1-W-", []byte("y"))
			require.NoError(t, err)
			h.contenderACL(h.root+"/of/alice/plain/"+p.Name, user, "a contender in a queue with data")
		})
	}
}

var strangers = map[string]string{"without a login": "", "with another one's login": "bob:geheim@", "with a wrong password": "alice:falsch@"}

func TestStrangersCanDoNothingToAQueueOfCreatorOrDigest(t *testing.T) {
	for _, mode := range []string{"creator", "digest"} {
		h := newACLFixture(t, mode)
		for who, login := range strangers {
			t.Run(mode+" "+who, func(t *testing.T) {
				s := mustConnect(t, h.dsn(login)+"?session_timeout=1m")
				for what, err := range refusedCalls(within(t), s, h.queue, h.place) {
					require.ErrorIs(t, err, zk.ErrNoAuth, what)
					assert.ErrorIs(t, err, fs.ErrPermission, what)
					for _, other := range []error{driver.ErrUnavailable, driver.ErrGone, driver.ErrSessionEnded, driver.ErrBadName} {
						assert.NotErrorIs(t, err, other, "%s: a retry would not help", what)
					}
					for _, part := range []string{"zkdriver: ", h.queuePath(), "READ", "getAcl", "user and the password"} {
						assert.ErrorContains(t, err, part, what)
					}
					assert.NotContains(t, err.Error(), "falsch", what)
					assert.NotContains(t, err.Error(), "geheim", what)
				}
				require.NoError(t, s.Err(), "a refusal ends no session")
			})
		}
		h.untouched()
	}
}

func refusedCalls(ctx context.Context, s *session, queue string, p driver.Place) map[string]error {
	_, create := create(ctx, s, queue, "evil-W-", []byte("x"))
	_, list := s.List(ctx, queue)
	_, watch := watchName(ctx, s, queue, p.Name)
	_, watchQueue := watchName(ctx, s, queue, "")
	_, read := s.Read(ctx, queue, p.Name)
	_, walk := s.Walk(ctx, queue)
	return map[string]error{
		"Create": create, "List": list, "Watch": watch, "Watch of a queue": watchQueue, "Read": read, "Walk": walk,
		"Delete": s.Delete(ctx, queue, p, driver.Changed), "Remove": s.Remove(ctx, queue, p),
	}
}

// Every client may create nodes below the ancestors, and so the queue.
func TestAQueueThatOthersMayAlterIsNotUsedWithCreatorOrDigest(t *testing.T) {
	bobToo := append(zk.DigestACL(zk.PermAll, "bob", "geheim"), aliceOnly...)
	for name, acl := range map[string][]zk.ACL{
		"every client":                everyClient,
		"every client may delete":     append(zk.WorldACL(zk.PermRead|zk.PermDelete), aliceOnly...),
		"every client may create":     append(zk.WorldACL(zk.PermCreate), aliceOnly...),
		"every client may write":      append(zk.WorldACL(zk.PermWrite), aliceOnly...),
		"every client may administer": append(zk.WorldACL(zk.PermAdmin), aliceOnly...),
		"another user":                bobToo,
		"an address":                  append([]zk.ACL{{Perms: zk.PermAll, Scheme: "ip", ID: "127.0.0.1"}}, aliceOnly...),
	} {
		for _, mode := range []string{"creator", "digest"} {
			t.Run(mode+" "+name, func(t *testing.T) {
				h := newACLFixture(t, mode)
				_, err := h.owner.Create(h.root+"/of/alice/trap", nil, 0, acl)
				require.NoError(t, err)
				for range 2 {
					_, err = create(within(t), h.alice, "of/alice/trap", "web1-W-", []byte("x"))
					require.Error(t, err)
					require.ErrorContains(t, err, h.root+"/of/alice/trap")
					require.ErrorContains(t, err, "acl="+mode)
					require.ErrorIs(t, err, fs.ErrPermission)
					require.NotErrorIs(t, err, driver.ErrUnavailable)
				}
				names, _, err := h.owner.Children(h.root + "/of/alice/trap")
				require.NoError(t, err)
				require.Empty(t, names)

				_, err = h.owner.SetACL(h.root+"/of/alice/trap", append(zk.WorldACL(zk.PermRead), aliceOnly...), -1)
				require.NoError(t, err)
				_, err = create(within(t), h.alice, "of/alice/trap", "web1-W-", []byte("x"))
				require.NoError(t, err, "a lock works although other users may read its nodes")
			})
		}
	}
}

func TestAValueThatOthersMayAlterIsNotUsedWithCreatorOrDigest(t *testing.T) {
	for _, mode := range []string{"creator", "digest"} {
		for name, acls := range map[string][2][]zk.ACL{
			"value":                        {mayAdd, everyClient},
			"node above the value":         {everyClient, aliceOnly},
			"node above a value, no value": {everyClient, nil},
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				h := newACLFixture(t, mode)
				other, err := create(within(t), h.alice, "other", "web1-W-", []byte("x"))
				require.NoError(t, err)
				require.NoError(t, h.alice.SetValue(within(t), "other", other, []byte("value")))
				path := h.root + "/kept\u00a0values/trap"
				_, err = h.owner.Create(path, nil, 0, acls[0])
				require.NoError(t, err)
				if acls[1] != nil {
					_, err = h.owner.Create(path+"/kept\u00a0value", []byte("planted"), 0, acls[1])
					require.NoError(t, err)
				}
				p, err := create(within(t), h.alice, "trap", "web1-W-", []byte("x"))
				require.NoError(t, err)
				err = h.alice.SetValue(within(t), "trap", p, []byte("value"))
				require.ErrorIs(t, err, fs.ErrPermission)
				require.ErrorContains(t, err, path)
				value, _, err := h.alice.Value(within(t), "trap")
				require.Nil(t, value)
				if acls[1] != nil {
					require.ErrorIs(t, err, fs.ErrPermission)
				}
			})
		}
		t.Run(mode+" node made for a queue below", func(t *testing.T) {
			h := newACLFixture(t, mode)
			for _, queue := range []string{"stock/42", "stock"} {
				p, err := create(within(t), h.alice, queue, "web1-W-", []byte("x"))
				require.NoError(t, err)
				for range 2 {
					require.NoError(t, h.alice.SetValue(within(t), queue, p, []byte(queue)))
					value, _, err := h.alice.Value(within(t), queue)
					require.NoError(t, err)
					require.Equal(t, queue, string(value))
				}
			}
		})
	}
}

func TestAQueueReplacedAfterItsCheckIsCheckedAgain(t *testing.T) {
	for name, data := range map[string][]byte{"with a write": nil, "without a write": []byte("another user's")} {
		t.Run(name, func(t *testing.T) {
			h := newACLFixture(t, "digest")
			path := h.root + "/of/alice/trap"
			_, err := h.owner.Create(path, data, 0, aliceOnly)
			require.NoError(t, err)
			p, err := create(within(t), h.alice, "of/alice/trap", "web1-W-", []byte("x"))
			require.NoError(t, err)
			require.NoError(t, h.alice.Delete(within(t), "of/alice/trap", p, driver.Changed))

			_, err = h.owner.SetACL(path, everyClient, -1)
			require.NoError(t, err)
			_, err = create(within(t), h.alice, "of/alice/trap", "web1-W-", []byte("x"))
			require.ErrorContains(t, err, "acl=digest", "Create refuses a queue that has another ACL")

			require.NoError(t, h.owner.Delete(path, -1), "no node of a refused Create is left")
			_, err = h.owner.Create(path, data, 0, aliceOnly)
			require.NoError(t, err)
			p, err = create(within(t), h.alice, "of/alice/trap", "web1-W-", []byte("x"))
			require.NoError(t, err)
			require.NoError(t, h.alice.Delete(within(t), "of/alice/trap", p, driver.Changed))
			require.NoError(t, h.owner.Delete(path, -1))
			_, err = h.owner.Create(path, data, 0, everyClient)
			require.NoError(t, err)
			_, err = create(within(t), h.alice, "of/alice/trap", "web1-W-", []byte("x"))
			require.ErrorContains(t, err, "acl=digest", "another queue")
			names, _, err := h.owner.Children(path)
			require.NoError(t, err)
			require.Empty(t, names)
		})
	}
}

// The queue's node may have been created as an ancestor, with a more open ACL.
func TestALockAboveLocksOfItsUserWorksWithCreatorAndDigest(t *testing.T) {
	for _, mode := range []string{"creator", "digest"} {
		t.Run(mode, func(t *testing.T) {
			h := newACLFixture(t, mode) // alice has created of/alice/q
			above, err := create(within(t), h.alice, "of/alice", "web1-W-", []byte("x"))
			require.NoError(t, err)
			acl, _, err := h.owner.GetACL(h.root + "/of/alice")
			require.NoError(t, err)
			require.Equal(t, aliceOnly, acl, "the ancestor has become a queue, with the ACL of a queue")

			same := mustConnect(t, h.dsn("alice:geheim@")+"?session_timeout=1m&acl="+mode)
			behind, err := same.Create(within(t), "of/alice", driver.NodeSpec{Prefix: "web2-W-", Data: []byte("y")})
			require.NoError(t, err)
			require.False(t, behind.Alone())
			_, err = create(within(t), same, "of/alice/more", "web2-W-", []byte("z"))
			require.NoError(t, err, "alice's locks below it work")
			require.NoError(t, h.alice.Delete(within(t), "of/alice", above, driver.Changed))
		})
	}
}

func TestALockAboveLocksOfAnotherUserIsRefusedWithTheReason(t *testing.T) {
	for _, mode := range []string{"creator", "digest"} {
		t.Run(mode, func(t *testing.T) {
			h := newACLFixture(t, mode)
			for _, login := range []string{"bob:geheim@", "alice:falsch@"} {
				s := mustConnect(t, h.dsn(login)+"?session_timeout=1m&acl="+mode)
				_, err := create(within(t), s, "of/alice", "web1-W-", []byte("x"))
				require.ErrorIs(t, err, fs.ErrPermission)
				require.NotErrorIs(t, err, driver.ErrUnavailable)
				require.ErrorContains(t, err, "for locks below it")
				_, err = create(within(t), s, "of/alice/other"+login[:3], "web1-W-", []byte("x"))
				require.NoError(t, err, "the locks of both stand side by side")
				require.NoError(t, s.Close())
			}
			acl, stat, err := h.owner.GetACL(h.root + "/of/alice")
			require.NoError(t, err)
			require.ElementsMatch(t, mayAdd, acl)
			require.Zero(t, stat.Aversion)
		})
	}
}

func TestSessionsThatLockANodeAboveTheirLocksAtOnceAllGetIt(t *testing.T) {
	h := newACLFixture(t, "digest")
	const n = 6
	sessions := make([]*session, n)
	for i := range sessions {
		sessions[i] = mustConnect(t, h.dsn("alice:geheim@")+"?session_timeout=1m&acl=digest")
	}
	made := make(chan error, n)
	for i, s := range sessions {
		go func() {
			_, err := create(within(t), s, "of/alice", "web1-W-", fmt.Append(nil, i))
			made <- err
		}()
	}
	for range n {
		require.NoError(t, <-made)
	}
}
