package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

var _ driver.Checker = (*connector)(nil)

// Check implements [driver.Checker]. It asks every member for its status,
// because sessions might never use a bad member.
func (c *connector) Check(ctx context.Context) ([]driver.Finding, error) {
	own, err := c.following()
	if err != nil {
		return nil, fmt.Errorf("etcddriver: %w", err)
	}
	var found []driver.Finding
	if client, err := own.client(ctx, own.settings.user); err == nil { // if not, session.Check returns the reason
		defer client.Close()
		found = own.checkMembers(ctx, client)
	}
	if slices.ContainsFunc(found, func(f driver.Finding) bool { return f.Level == driver.Problem }) {
		return found, nil
	}
	more, err := session.Check(ctx, c, adviceOn, func(st session.Store) []driver.Finding {
		return st.(*backend).checkHistory(ctx, muchHistory)
	})
	return append(found, more...), err
}

// adviceOn returns advice on an error that does not itself say what to do.
func adviceOn(err error) string {
	switch {
	case code(err) == codes.PermissionDenied:
		return "let the operator give a role of this user readwrite on the prefix (etcdctl role grant-permission --prefix)"
	case errors.Is(err, rpctypes.ErrNoSpace):
		return "compact and defragment the database and disarm the alarm (etcdctl compact, defrag, alarm disarm), " +
			"and set --auto-compaction-retention and --quota-backend-bytes"
	}
	return ""
}

const majority = "start enough members of the cluster for a majority"

// muchHistory is the number of old revisions above which Check warns.
const muchHistory = 1_000_000

// checkMembers checks all members, because a client may connect to any of them.
func (c *connector) checkMembers(ctx context.Context, client *clientv3.Client) (found []driver.Finding) {
	add := func(level driver.Level, advice, format string, args ...any) {
		found = append(found, driver.Finding{Level: level, Text: fmt.Sprintf(format, args...), Advice: advice})
	}
	var good []string
	var cluster, leader uint64
	for _, endpoint := range c.settings.endpoints {
		limited, cancel := context.WithTimeout(ctx, c.settings.requestTimeout())
		m, err := client.Status(limited, endpoint)
		proxy := err == nil && isProxy(limited, client, endpoint)
		cancel()
		if err != nil {
			add(driver.Unknown, "let the operator look at this member (etcdctl endpoint status)", "%s: no status: %v", endpoint, err)
			continue
		}
		before := len(found)
		if cluster != 0 && cluster != m.Header.ClusterId {
			add(driver.Problem, "list only members of one cluster in the data source name", "%s: the servers belong to different clusters", endpoint)
		}
		cluster, leader = m.Header.ClusterId, max(leader, m.Leader)
		if m.IsLearner {
			add(driver.Problem, "promote the member (etcdctl member promote), or leave it out of the data source name",
				"%s: the member is a learner, which refuses requests", endpoint)
		}
		if proxy {
			add(driver.Problem, "name the members themselves in the data source name",
				"%s: this looks like an etcd grpc-proxy, through which a lock may have two holders", endpoint)
		}
		if m.Leader == 0 {
			add(driver.Warning, majority, "%s: the member has no leader", endpoint)
		}
		if mayKeepLostLeases(m.Version) {
			add(driver.Warning, "install 3.4.31, 3.5.13 or later", "%s: version %s: a leader that was paused may let a lock have two holders (etcd issue 15247)", endpoint, m.Version)
		}
		if m.DbSizeQuota > 0 && m.DbSize > m.DbSizeQuota*8/10 {
			add(driver.Warning, "compact and defragment the database, or raise --quota-backend-bytes: a full database takes no locks",
				"%s: the database has %d of %d bytes", endpoint, m.DbSize, m.DbSizeQuota)
		}
		for _, text := range m.Errors {
			add(driver.Warning, "let the operator look at this member (etcdctl alarm list)", "%s: %s", endpoint, text)
		}
		if len(found) == before {
			good = append(good, fmt.Sprintf("%s has version %s", endpoint, m.Version))
		}
	}
	if cluster != 0 && leader == 0 {
		add(driver.Problem, majority, "none of the servers that answer has a leader")
	}
	if len(good) > 0 {
		add(driver.OK, "", "%s. Make sure that no member runs with --unsafe-no-fsync, which no client can see", strings.Join(good, "; "))
	}
	return found
}

// isProxy recognizes an etcd grpc-proxy: it has no gRPC health service.
func isProxy(ctx context.Context, client *clientv3.Client, endpoint string) bool {
	conn, err := client.Dial(endpoint)
	if err == nil {
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		_ = conn.Close()
	}
	return status.Code(err) == codes.Unimplemented
}

// checkHistory reports the current revision, and warns of too many old ones.
func (b *backend) checkHistory(ctx context.Context, many int64) []driver.Finding {
	now, err := b.client.Get(ctx, b.settings.root(), clientv3.WithCountOnly())
	if err != nil {
		return []driver.Finding{{Level: driver.Unknown, Text: err.Error(), Advice: "try again when the cluster is less busy"}}
	}
	revision := now.Header.Revision
	found := []driver.Finding{{Text: fmt.Sprintf("revision %d, with room for %d more", revision, math.MaxInt64-revision)}}
	if revision <= many {
		return found
	}
	if _, err := b.client.Get(ctx, b.settings.root(), clientv3.WithCountOnly(), clientv3.WithRev(revision-many)); err == nil {
		found = append(found, driver.Finding{Level: driver.Warning,
			Text:   fmt.Sprintf("the cluster keeps more than %d old revisions, which fill its disk and slow it down", many),
			Advice: "set --auto-compaction-retention, such as 1h"})
	}
	return found
}

// mayKeepLostLeases reports whether a deposed leader of this version may revoke
// leases that its successor renewed.
func mayKeepLostLeases(version string) bool {
	var v [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n != 3 {
		return false
	}
	return slices.Compare(v[:], []int{3, 4, 31}) < 0 || v[1] == 5 && slices.Compare(v[:], []int{3, 5, 13}) < 0
}
