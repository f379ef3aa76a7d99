package zkdriver

import (
	"context"
	"strconv"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func BenchmarkCreateDelete(b *testing.B) {
	server := zktest.Shared(b)
	chroot := server.Chroot(b)
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := mustConnect(b, "zk://"+server.Addr()+chroot)
	for name, ctx := range map[string]context.Context{"driver": context.Background(), "driver, cancellable": cancellable} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				p, err := create(ctx, s, "q", "h-W-", strconv.AppendInt(nil, int64(i), 10))
				require.NoError(b, err)
				require.NoError(b, s.Delete(ctx, "q", p, driver.Changed))
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		conn := server.Raw(b)
		_, err := conn.Create(chroot+"/bare", nil, 0, zk.WorldACL(zk.PermAll))
		if err != nil && err != zk.ErrNodeExists {
			b.Fatal(err)
		}
		for i := range b.N {
			made, err := conn.Multi(
				&zk.CreateRequest{Path: chroot + "/bare/h-W-", Data: strconv.AppendInt(nil, int64(i), 10), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential},
				&zk.SetDataRequest{Path: chroot + "/bare", Data: []byte{}, Version: -1})
			require.NoError(b, err)
			require.NoError(b, conn.Delete(made[0].String, -1))
		}
	})
}
