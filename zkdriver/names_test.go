package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

func TestNamesAreTranslatedOneToOne(t *testing.T) {
	for names, shown := range map[string]map[string]string{
		"dlock": {"web1-W-0000000007": "web1-W-0000000007", "u-__WRIT__0000000007": "u-__WRIT__0000000007"},
		"curator": {
			"_c_u-__WRIT__0000000007": "_c_u-W-0000000007",
			"_c_u-__READ__0000000007": "_c_u-R-0000000007",
			"web1-W-0000000007":       "web1-W-0000000007~",
			"web1-R-0000000007":       "web1-R-0000000007~",
			"_c_u-lock-0000000007":    "_c_u-lock-0000000007",
			"u__lock__0000000007":     "u__lock__0000000007",
			"__WRIT__0000000007":      "__WRIT__0000000007",
			"a-W-00000000012":         "a-W-00000000012",
			"web1-S2of5-0000000007":   "web1-S2of5-0000000007",
			"no sequence":             "no sequence",
		},
		"curator-mutex": {
			"_c_u-lock-0000000007": "_c_u-W-0000000007",
			"web1-W-0000000007":    "web1-W-0000000007~",
			"web1-R-0000000007":    "web1-R-0000000007~",
		},
		"kazoo": {
			"u__lock__0000000007":     "u-W-0000000007",
			"u__rlock__0000000007":    "u-R-0000000007",
			"web1-W-0000000007":       "web1-W-0000000007~",
			"_c_u-__WRIT__0000000007": "_c_u-__WRIT__0000000007",
		},
	} {
		l, err := layoutOf(names)
		require.NoError(t, err)
		for stored, want := range shown {
			assert.Equal(t, want, l.shown(stored), names)
			assert.Equal(t, stored, l.stored(want), names)
		}
	}
}

func TestAQueueOfAnotherLayoutIsRefused(t *testing.T) {
	ends := map[string]string{"dlock": "-W-", "curator": "-__WRIT__", "curator-mutex": "-lock-", "kazoo": "__lock__"}
	for names := range ends {
		b := newFixture(t, "names="+names)
		for other, end := range ends {
			queue := "q-" + other
			b.warm(queue)
			path, err := b.raw.Create(b.chroot+"/"+queue+"/u"+end, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			name := path[len(b.chroot+"/"+queue+"/"):]
			p, err := create(within(t), b, queue, "web1-W-", nil)
			if names == "dlock" || other == names {
				require.NoError(t, err)
				require.NoError(t, b.Delete(within(t), queue, p, driver.Changed))
				continue
			}
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			assert.ErrorContains(t, err, fmt.Sprintf("its node %s has a name like those of names=%s, which do not respect names=%s", name, other, names))
			assert.NotErrorIs(t, err, driver.ErrUnavailable, "a retry does not help")
			assert.Equal(t, []string{name}, b.nodes(queue))
		}
	}
}

// Clients of the other library would ignore a semaphore's contenders.
func TestASemaphoreIsRefusedWhereAnotherLibraryTakesPart(t *testing.T) {
	for _, l := range otherLayouts {
		b := newFixture(t, "names="+l.name)
		c, err := Driver{}.OpenConnector("zk://" + b.server.Addr() + b.chroot + "?names=" + l.name)
		require.NoError(t, err)
		client := dlock.NewClient(c)
		defer client.Close()
		for _, acquire := range []func(context.Context, int) (*dlock.Lock, error){client.Semaphore("q", 2).Acquire, client.Semaphore("q", 2).TryAcquire} {
			_, err = acquire(within(t), 1)
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			assert.NotErrorIs(t, err, dlock.ErrUnavailable)
			assert.ErrorContains(t, err, "names="+l.name)
		}
	}
}

func TestALayoutWithoutReaders(t *testing.T) {
	b := newFixture(t, "names=curator-mutex")
	_, err := create(within(t), b, "q", "web1-R-", nil)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "names=curator-mutex")
	p := b.mustCreate("q", "web1-W-", "")
	assert.Equal(t, []string{"web1-lock-0000000000"}, b.nodes("q"))
	_, err = b.Replace(within(t), "q", p, "web1-R-")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// Curator's readers take a node for a writer if its name contains "__WRIT__".
func TestAHostNameMustNotLookLikeAWriterOfCurator(t *testing.T) {
	b := newFixture(t, "names=curator")
	_, err := create(within(t), b, "q", "a__WRIT__b-R-", nil)
	assert.ErrorIs(t, err, driver.ErrBadName)
	assert.Empty(t, b.nodes("q"))
}

func TestDataOfALaterVersionAreTolerated(t *testing.T) {
	for _, data := range []string{"", "\xff\x00", `{"layout":9}`, "a\n#dlock layout=9", "a\n#dlock token=7 created=8 more=9"} {
		got, facts, _ := splitTrailer([]byte(data))
		assert.Equal(t, data, string(got))
		assert.Zero(t, facts)
	}
}
