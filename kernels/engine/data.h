/* data.h - data sets: made on the phone from a seed, or read from a file; kept in memory.
 *
 * A stream is one column of a data set (the images, or their labels). Streams of one plan agree
 * sample by sample: sample s has the class that hash(seed, s) says, whichever stream is asked.
 * Making them is part of getting ready; the operation "load" then copies one batch a step, which
 * is what the timed phase "load" measures.
 *
 *   GENERATOR INTS | FLOATS
 *   image CLASSES            byte (C,H,W): a smooth picture of the class, under noise
 *   rows CLASSES             float (F): a point near the class's own point
 *   label CLASSES            index (): the class
 *   one_hot CLASSES          float (CLASSES): the same as numbers
 *   tokens SYMBOLS           index (T): a text in which every symbol has likely followers
 *   next_tokens SYMBOLS      index (T): the same text, one symbol later
 *   token_class SYMBOLS CLASSES  index (T): a text whose symbols depend on the class
 *   normal                   float: independent normal values, new ones in every batch of COUNT
 *   constant | VALUE         float: one value
 *   personal CLASSES FIRST   image as above, but drifting from sample FIRST on (daily-increment)
 *   file NUMBER              byte or index, from the NUMBERth column of the data file (--data FILE)
 *
 * The operation: `load : out : STREAM FIRST : SCALE SHIFT` copies samples
 * (FIRST + step * batch + n) mod COUNT; bytes become value * SCALE + SHIFT.
 */
#ifndef FARMHAND_DATA_H
#define FARMHAND_DATA_H

struct dataset;

#endif
