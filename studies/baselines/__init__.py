"""Standard methods to compare with, and the ground truth to compare against: one per module.

Every method takes a key and either a problem or the log density of one point, unnormalised, with
the number of its dimensions. `draws` is the number of draws to return, and `scale` the standard
deviation of the normal distribution that a method starts from.
"""
