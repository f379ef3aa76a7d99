package etcddriver

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dlock-go/dlock/driver"
)

// Any etcd client may write keys below the prefix that are not nodes.
func FuzzParseNode(f *testing.F) {
	for _, key := range []string{"694d9af3a6d2710c:7", "released", "web-W-0000000001", "694d9af3a6d2710c:", "/x", ""} {
		f.Add(key, "h-W-\n{}", int64(7))
	}
	f.Fuzz(func(t *testing.T, id, value string, revision int64) {
		const keys = "locks/q//"
		revision = max(revision, 1) % (1 << 58)
		m, ok := parseNode(keys, &mvccpb.KeyValue{Key: []byte(keys + id), Value: []byte(value), CreateRevision: revision})
		queue, found := (&settings{prefix: "locks"}).queueOf(keys + id)
		if !ok {
			return
		}
		require.True(t, found)
		require.Equal(t, "q", queue)
		_, seq, sequenced := driver.ParseName(m.Name)
		require.True(t, sequenced)
		require.Equal(t, m.Seq, seq)
	})
}
