package etcddriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
)

// Diagnose implements [driver.Diagnoser].
func (c *connector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	s := c.settings
	st := diagnose.Store{
		Connector: checkedFirst{c}, Timeout: s.timeout, Hosts: s.endpoints, Password: s.user != "", Explain: explainDiagnosis,
		NoClock: "etcd shows no clock, and needs none: it counts the session timeout itself",
		Inspect: func(ctx context.Context, ds driver.Session, report func(driver.Finding)) {
			ds.(*session).inspect(ctx, report)
		},
	}
	if s.tls {
		st.TLS = func(host string) (*tls.Config, error) {
			config, err := s.loadTLS()
			if err != nil {
				return nil, err
			}
			config.NextProtos = []string{"h2"}
			if config.ServerName == "" {
				config.ServerName = host
			}
			return config, nil
		}
	}
	return diagnose.Run(ctx, st, report)
}

// checkedFirst is a connector that first asks every server for its status.
// Without these checks, load balancing would make it a matter of chance whether
// a request reaches a bad server.
type checkedFirst struct{ *connector }

var (
	errTwoClusters = errors.New("the servers belong to different clusters")
	errLearner     = errors.New("the member is a learner, which refuses requests")
)

func (c checkedFirst) Connect(ctx context.Context) (driver.Session, error) {
	if err := c.checkServers(ctx); err != nil {
		return nil, fmt.Errorf("etcddriver: %w", err)
	}
	return c.connector.Connect(ctx)
}

// checkServers fails if the servers belong to different clusters, if one of
// them is a learner, or if none of them has a leader. It skips servers that do
// not answer, and leaves it to Connect to report them.
func (c checkedFirst) checkServers(ctx context.Context) error {
	own, err := c.following()
	if err != nil {
		return err
	}
	client, err := own.client(ctx)
	if err != nil {
		return nil
	}
	defer client.Close()
	var cluster, leader uint64
	for _, endpoint := range own.settings.endpoints {
		limited, cancel := context.WithTimeout(ctx, own.settings.requestTimeout())
		m, err := client.Status(limited, endpoint)
		cancel()
		switch {
		case err != nil:
			continue
		case cluster != 0 && cluster != m.Header.ClusterId:
			return fmt.Errorf("%s: %w", endpoint, errTwoClusters)
		case m.IsLearner:
			return fmt.Errorf("%s: %w", endpoint, errLearner)
		}
		cluster, leader = m.Header.ClusterId, max(leader, m.Leader)
	}
	if cluster != 0 && leader == 0 {
		return rpctypes.ErrNoLeader
	}
	return nil
}

func explainDiagnosis(err error) (check driver.Check, advice string) {
	switch {
	case errors.Is(err, errTwoClusters):
		return driver.CheckLogin, "list only members of one cluster in the data source name"
	case errors.Is(err, errLearner):
		return driver.CheckLogin, "promote the member (etcdctl member promote), or leave it out of the data source name"
	case errors.Is(err, rpctypes.ErrNoLeader):
		return driver.CheckLogin, majority
	case code(err) == codes.PermissionDenied:
		return driver.CheckRights, "let the operator give a role of this user readwrite on the prefix (etcdctl role grant-permission --prefix)"
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthNotEnabled),
		errors.Is(err, rpctypes.ErrUserNotFound):
		return driver.CheckLogin, "correct the user and the password of the data source name"
	case errors.Is(err, rpctypes.ErrNoSpace):
		return driver.CheckSettings, "compact and defragment the database and disarm the alarm (etcdctl compact, defrag, alarm disarm), " +
			"and set --auto-compaction-retention and --quota-backend-bytes"
	}
	return "", ""
}

const majority = "start enough members of the cluster for a majority"

// muchHistory is the number of old revisions above which Diagnose advises
// compaction.
const muchHistory = 1_000_000

// inspect checks every member of the cluster, because a client may be connected
// to any of them.
func (s *session) inspect(ctx context.Context, report func(driver.Finding)) {
	var found []driver.Finding
	add := func(level driver.Level, advice, format string, args ...any) {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Level: level, Text: fmt.Sprintf(format, args...), Advice: advice})
	}
	var good []string
	for _, endpoint := range s.settings.endpoints {
		limited, cancel := context.WithTimeout(ctx, s.settings.requestTimeout())
		m, err := s.client.Status(limited, endpoint)
		cancel()
		if err != nil {
			add(driver.Unknown, "let the operator look at this member (etcdctl endpoint status)", "%s: no status: %v", endpoint, err)
			continue
		}
		before := len(found)
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
	sequences, history := s.history(ctx, muchHistory)
	found = append(found, history...)
	if len(good) > 0 {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Text: strings.Join(good, "; ") +
			". Make sure that no member runs with --unsafe-no-fsync, which no client can see"})
	}
	for _, f := range found {
		report(f)
	}
	report(sequences)
}

// history returns a finding about the store's current revision, and another one
// if the store keeps more than many old revisions.
func (s *session) history(ctx context.Context, many int64) (sequences driver.Finding, found []driver.Finding) {
	sequences = driver.Finding{Check: driver.CheckSequences}
	now, err := s.client.Get(ctx, s.settings.root(), clientv3.WithCountOnly())
	if err != nil {
		sequences.Level, sequences.Text, sequences.Advice = driver.Unknown, err.Error(), "try again when the cluster is less busy"
		return sequences, nil
	}
	revision := now.Header.Revision
	sequences.Text = fmt.Sprintf("revision %d, with room for %d more", revision, math.MaxInt64-revision)
	if revision <= many {
		return sequences, nil
	}
	if _, err := s.client.Get(ctx, s.settings.root(), clientv3.WithCountOnly(), clientv3.WithRev(revision-many)); err == nil {
		found = []driver.Finding{{Check: driver.CheckSettings, Level: driver.Warning,
			Text:   fmt.Sprintf("the cluster keeps more than %d old revisions, which fill its disk and slow it down", many),
			Advice: "set --auto-compaction-retention, such as 1h"}}
	}
	return sequences, found
}

// mayKeepLostLeases reports whether this etcd version has a bug by which a
// deposed leader may revoke leases that were renewed at its successor.
func mayKeepLostLeases(version string) bool {
	var v [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n != 3 {
		return false
	}
	return slices.Compare(v[:], []int{3, 4, 31}) < 0 || v[1] == 5 && slices.Compare(v[:], []int{3, 5, 13}) < 0
}
