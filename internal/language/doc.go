// Package language tests the language of this repository: the comments, strings
// and Markdown files of all its modules. The test finds words and sentence
// forms that hide the actor of a sentence, and lines that are too long to read.
//
// The rules are in rules_test.go. A hit need not be a mistake: the word may be
// part of a quotation. Such a hit is listed in testdata/words.txt or
// testdata/long-lines.txt, by its file and its text. The number of such hits is
// limited.
package language
