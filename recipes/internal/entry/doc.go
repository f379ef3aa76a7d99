// Package entry manages a contender's node in a queue, from the creation of
// the node to its removal. It builds on package driver and knows nothing of
// lock modes or re-entrant locks. The caller passes a [Rule] that decides which
// nodes block an entry, so other recipes can use it, too.
//
// The files, from the bottom up:
//
//	retry.go       pauses between the tries of one request
//	errors.go      the reasons for which an entry or a call ends
//	queue.go       a queue, the rule that grants, and the ways of waiting
//	session.go     a session and the entries that were granted in it
//	entry.go       an entry, its states, and every transition between them
//	node.go        the watch of an entry's own node
//	reaper.go      requests that are repeated until the store has answered
//	rename.go      gives a node a new name and keeps its position
//	left.go        requests that go on when their callers have left
//	remove.go      removes a node
//	wait.go        what an entry does until nothing blocks it
//	observe.go     watches a whole queue
package entry
