package shards

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/dlock-go/dlock"
)

func members(queue []dlock.Contender) (nodes []string) {
	for _, c := range queue {
		if c.Holds && c.Mode == dlock.Shared {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// assign returns the index of each shard's member, by rendezvous hashing with
// bounded loads. It must never change, because all processes must agree.
func assign(members []string, n int) []int {
	if len(members) == 0 {
		return nil
	}
	limit := (n + len(members) - 1) / len(members)
	loads := make([]int, len(members))
	owners := slices.Repeat([]int{-1}, n)
	for _, p := range ranked(members, n) {
		if owners[p.shard] < 0 && loads[p.member] < limit {
			owners[p.shard] = p.member
			loads[p.member]++
		}
	}
	return owners
}

type pair struct {
	hash          uint64
	shard, member int
}

// ranked returns all pairs of a shard and a member, the greatest hash first.
func ranked(members []string, n int) []pair {
	pairs := make([]pair, 0, n*len(members))
	for i, m := range members {
		h := fnv.New64a()
		h.Write([]byte(m))
		for shard := range n {
			pairs = append(pairs, pair{mix(h.Sum64() + uint64(shard)), shard, i})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Compare(b.hash, a.hash) })
	return pairs
}

// mix spreads the bits of x. It is the output function of SplitMix64 (Steele,
// Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
