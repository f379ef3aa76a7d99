package etcddriver

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestTheLayoutIsAsDocumented(t *testing.T) {
	server := etcdtest.Shared(t)
	prefix := server.Prefix()
	s := connectTo(t, "etcd://"+server.Addr()+"/"+prefix)
	id := fmt.Sprintf("%016x", int64(s.b.id))
	first, second := create(t, s, "stock/42", "web1-W-"), create(t, s, "stock/42", "web2-R-")
	w, err := s.WatchQueue(within(t), "stock/42") // makes Delete announce the release
	require.NoError(t, err)
	defer w.Stop()
	require.Equal(t, fmt.Sprintf("web1-W-%010d", first.Token), first.Name)
	require.NoError(t, s.Delete(within(t), "stock/42", first.Place, driver.Released))
	lost := session.Change{Queue: "stock/42", Number: -1}
	s.b.take(lost)
	require.NoError(t, s.b.Cancel(within(t), []session.Change{lost}))

	require.Equal(t, strings.Join([]string{
		prefix + "//cancelled/" + id, "",
		prefix + "//layout", "1",
		prefix + "/stock/42/.released", id + ":1",
		prefix + "/stock/42//" + id + ":2", "web2-R-", "web2-R-data", "",
	}, "\n"), server.Etcdctl("get", "--prefix", prefix+"/"))
	_, err = s.Replace(within(t), "stock/42", second.Place, "web3-W-")
	require.NoError(t, err)
	require.Equal(t, "web3-W-\nweb2-R-data\n", server.Etcdctl("get", "--print-value-only", prefix+"/stock/42//"+id+":2"))

	keys := server.Etcdctl("lease", "timetolive", "--keys", id)
	for _, key := range []string{"//cancelled/" + id, "/stock/42//" + id + ":2", "/stock/42/.released"} {
		require.Contains(t, keys, prefix+key)
	}
}

func TestKeysOfAnotherLayoutAreRefused(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix())
	server.Etcdctl("put", s.b.settings.layoutKey(), "2")
	c := s.b.connector
	for _, begin := range []func(context.Context) (driver.Session, error){c.Connect, c.Observe} {
		_, err := begin(within(t))
		require.ErrorContains(t, err, "have layout 2, and this version of dlock needs layout 1")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	create(t, s, "q", "h-W-")
}

func TestAnotherProgramTakesPartByTheDocumentedStatements(t *testing.T) {
	server := etcdtest.Shared(t)
	prefix := server.Prefix()
	s := connectTo(t, "etcd://"+server.Addr()+"/"+prefix)
	lease := strings.Fields(server.Etcdctl("lease", "grant", "60"))[1]
	defer server.Etcdctl("lease", "revoke", lease)
	keys := prefix + "/stock/42//"

	txn(t, server, `mod("`+prefix+"//cancelled/"+lease+`") = "0"`,
		"get --prefix "+keys, "put --lease="+lease+" "+keys+lease+`:1 "web1-W-\n{}"`)
	nodes, err := s.List(within(t), "stock/42")
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.Equal(t, fmt.Sprintf("web1-W-%010d", nodes[0].Seq), nodes[0].Name)

	own := create(t, s, "stock/42", "h-W-")
	require.Equal(t, nodes, own.Ahead)
	w, err := s.Watch(within(t), "stock/42", own.Place, nodes[0])
	require.NoError(t, err)
	txn(t, server, fmt.Sprintf(`create("%s%s:1") = "%d"`, keys, lease, nodes[0].Seq),
		"del "+keys+lease+":1", "put --lease="+lease+" "+prefix+"/stock/42/.released "+lease+":1")
	cause, _ := testenv.Receive(t, w.C, "news of the release")
	require.Equal(t, driver.Released, cause)
}

func txn(t *testing.T, server *etcdtest.Server, compare string, success ...string) {
	t.Helper()
	cmd := exec.Command("etcdctl", "--endpoints", server.URL(), "txn")
	cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3")
	cmd.Stdin = strings.NewReader(compare + "\n\n" + strings.Join(success, "\n") + "\n\n\n")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "SUCCESS")
}
